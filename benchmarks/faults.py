"""What it costs to look at every number: shares of a step of training, and of acting."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from benchmarks.dqn import MEASURED, NUM_ENVS, SETTINGS, midstride_rate
from benchmarks.figures import Figure, seconds
from midstride.envs.faults import check_step
from midstride.envs.vector import interact
from midstride.finite import check_finite, is_finite
from midstride.learn.agents import Training
from midstride.learn.trainer import Trainer
from midstride.policies import CemPolicy, QPolicy

REPEATS, ROUNDS = 2_000, 7
ALLOWED = 0.01  # of a step


def run() -> list[Figure]:
    trainer = Trainer.create(Training.of("cartpole", "dqn", **SETTINGS))
    step_s = checks_s(trainer) / (NUM_ENVS / np.median([midstride_rate() for _ in range(3)]))
    found = [
        Figure(
            "faults/checks-of-a-dqn-step",
            float(step_s),
            "x",
            f"a step of training on Cartpole, {MEASURED:,} of them",
            limit=ALLOWED,
        )
    ]
    qtopt = Trainer.create(Training.of("pendulum", "qtopt", actions="continuous"))
    for name, policy in (("q", trainer.agent.policy), ("cem", qtopt.agent.policy)):
        found.append(Figure(f"faults/check-of-acting-{name}", acting(policy), "x", "policy(one)"))
    return found


def checks_s(trainer: Trainer) -> float:
    """Seconds of all checks of one round: of what the environments gave, a loss and weights."""
    envs, agent = trainer.envs, trainer.agent
    steps = interact(envs, lambda seen: agent.act(seen, 0), 0, lambda which: None)
    (step,) = itertools.islice(steps, 1)
    loss, weights = np.ones(4, np.float32), np.asarray(agent.state["online"])

    def checks() -> None:
        check_step(envs, step, step.observation_next, 1)
        is_finite(loss)
        is_finite(weights)

    return each_s(checks)


def acting(policy: QPolicy | CemPolicy) -> float:
    """The share of the check in choosing one action."""
    observation = np.zeros(policy.observation_size, np.float32)
    return each_s(lambda: check_finite(observation)) / each_s(lambda: policy(observation))


def each_s(work: Callable[[], object]) -> float:
    """Seconds of one call: the median of several rounds."""

    def round_of_them() -> None:
        for _ in range(REPEATS):
            work()

    return float(np.median([seconds(round_of_them) for _ in range(ROUNDS)])) / REPEATS
