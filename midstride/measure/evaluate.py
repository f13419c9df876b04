"""Policy x environments x seeds -> episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.envs.faults import closed_after
from midstride.envs.learnable import Environment, LearnableEnvs
from midstride.envs.vector import interact
from midstride.policies import Policy

# Evaluation episodes start from seeds that training does not use.
EVALUATION_SEED = 1_000_000
EVALUATION_SCENE_SEED = 1  # seed of the scenes that a training is watched in
_MOST_ENVS = 64


@dataclass(frozen=True)
class Episode:
    """What came of one episode."""

    total: float  # return
    steps: int
    seconds: float
    latency_s: float  # mean over its steps
    measures: dict[str, float] = field(default_factory=dict)  # that the environment took


def evaluate(
    policy: Policy,
    envs: LearnableEnvs,
    episodes: int,
    seed: int = EVALUATION_SEED,
    on_episode: Callable[[int], None] = lambda finished: None,
) -> list[Episode]:
    """Whole episodes of a policy in vector environments, side by side.

    Each environment plays the same number of episodes (the last round may be cut), so that short
    episodes are not over-represented.
    """
    check_observation(policy, envs)
    n = envs.num_envs
    rounds = -(-episodes // n)
    policy.reset()
    found: list[list[Episode]] = [[] for _ in range(n)]
    totals = np.zeros((4, n))  # return, steps, seconds, latency
    for step in interact(envs, acting(policy), seed, policy.reset):
        totals += [step.reward, np.ones(n), step.period_s, step.latency_s]
        for i in np.flatnonzero(step.done):
            reward, steps, seconds, latency_s = (float(total) for total in totals[:, i])
            measures = {name: float(values[i]) for name, values in step.measures.items()}
            found[i].append(Episode(reward, int(steps), seconds, latency_s / steps, measures))
            totals[:, i] = 0
        if step.done.any():
            on_episode(sum(min(len(f), rounds) for f in found))
        if all(len(each) >= rounds for each in found):
            break
    in_rounds = [each[r] for r in range(rounds) for each in found]
    return in_rounds[:episodes]


def evaluate_in(
    policy: Policy,
    environment: Environment,
    episodes: int,
    seed: int = EVALUATION_SEED,
    scenes: int = EVALUATION_SCENE_SEED,
    on_episode: Callable[[int], None] = lambda finished: None,
) -> list[Episode]:
    """Whole episodes of a policy in the environment that it is judged in."""
    envs = environment.for_evaluation(scenes).make(min(episodes, _MOST_ENVS))
    with closed_after(envs):
        return evaluate(policy, envs, episodes, seed, on_episode)


def acting(policy: Policy) -> Callable[[Any], tuple[NDArray[Any], dict[str, NDArray[Any]]]]:
    """A policy as what `interact` asks for."""
    return lambda observation: (policy(observation), {})


def check_observation(policy: Policy, envs: LearnableEnvs) -> None:
    """An error if the environments do not observe what the policy was trained on."""
    space = envs.single_observation_space
    columns = (space["state"] if isinstance(space, spaces.Dict) else space).shape
    if columns != (policy.observation_size,):
        raise ValueError(
            f"the policy observes {policy.observation_size} columns, the environment gives "
            f"{columns}: evaluate it on the task and knowledge that it was trained with"
        )
