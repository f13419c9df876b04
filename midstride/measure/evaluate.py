"""Policy x environment x seeds -> episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from scipy.stats import binomtest, bootstrap

from midstride.envs.loop import MEASURES, interact
from midstride.learn.config import AnyConfig
from midstride.policies import AnyPolicy
from midstride.tasks.make import make_envs
from midstride.timing import LatencyModel

# Evaluation episodes start from seeds that training does not use.
EVALUATION_SEED = 1_000_000
EVALUATION_SCENES = 1  # seed of the scenes that a training is watched in
_RESAMPLES = 2000


@dataclass(frozen=True)
class Episode:
    """What came of one episode."""

    total: float  # return
    steps: int
    seconds: float
    latency_s: float  # mean over its steps
    measures: dict[str, float] = field(default_factory=dict)  # that the environment took


def evaluate(
    policy: AnyPolicy,
    config: AnyConfig,
    episodes: int,
    latency: LatencyModel | None = None,
    seed: int = EVALUATION_SEED,
    on_episode: Callable[[int], None] = lambda finished: None,
    max_envs: int = 64,
    scenes: int = EVALUATION_SCENES,
) -> list[Episode]:
    """Whole episodes of a greedy policy, side by side; of grasping, in the scenes of a seed.

    Each environment plays the same number of episodes (the last round may be cut), so that short
    episodes are not over-represented.
    """
    num_envs = min(episodes, max_envs)
    rounds = -(-episodes // num_envs)
    envs = make_envs(config, num_envs, latency, evaluation=scenes)
    space = envs.single_observation_space
    columns = (space["state"] if isinstance(space, spaces.Dict) else space).shape
    if columns != (policy.observation_size,):
        raise ValueError(
            f"the policy observes {policy.observation_size} columns, the environment gives "
            f"{columns}: evaluate it on the task and knowledge that it was trained with"
        )
    policy.reset()
    found: list[list[Episode]] = [[] for _ in range(num_envs)]
    totals = np.zeros((4, num_envs))  # return, steps, seconds, latency
    for step in interact(envs, policy, seed, policy.reset):
        totals += [step["reward"], np.ones(num_envs), step["period_s"], step["latency_s"]]
        for i in np.flatnonzero(step["done"]):
            reward, steps, seconds, latency_s = totals[:, i]
            found[i].append(
                Episode(
                    float(reward),
                    int(steps),
                    float(seconds),
                    float(latency_s / steps),
                    {name: float(step[name][i]) for name in MEASURES if name in step},
                )
            )
            totals[:, i] = 0
        if step["done"].any():
            on_episode(sum(min(len(f), rounds) for f in found))
        if all(len(each) >= rounds for each in found):
            break
    envs.close()
    in_rounds = [each[r] for r in range(rounds) for each in found]
    return in_rounds[:episodes]


def share_interval(successes: Sequence[float] | NDArray[np.floating]) -> tuple[float, float]:
    """The 95 % interval (Wilson) of a share, from zeros and ones: also where all are the same."""
    array = np.asarray(successes, float)
    found = binomtest(int(array.sum()), len(array)).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def nested_interval(
    groups: Sequence[Sequence[float]], others: Sequence[Sequence[float]] | None = None
) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean over groups of episodes, one per training.

    Trainings are drawn, then episodes of each: both vary. With `others`, of the difference of
    the means. With few trainings it is narrower than it should be: look at each of them too.
    """
    rng = np.random.default_rng(0)

    def means(groups: Sequence[Sequence[float]]) -> NDArray[np.floating]:
        arrays = [np.asarray(group, float) for group in groups]
        found = np.zeros(_RESAMPLES)
        for k in range(_RESAMPLES):
            drawn = [arrays[i] for i in rng.integers(len(arrays), size=len(arrays))]
            found[k] = np.mean([a[rng.integers(len(a), size=len(a))].mean() for a in drawn])
        return found

    found = means(groups) if others is None else means(groups) - means(others)
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def interval(values: Sequence[float] | NDArray[np.floating]) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean."""
    array = np.asarray(values, float)
    if len(array) < 2 or np.ptp(array) == 0:
        return float(array.mean()), float(array.mean())
    found = bootstrap((array,), np.mean, n_resamples=2000, rng=np.random.default_rng(0))
    return float(found.confidence_interval.low), float(found.confidence_interval.high)
