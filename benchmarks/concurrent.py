"""Wrapping: steps per second of environments that others wrote, against themselves unwrapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from benchmarks.figures import Figure, seconds
from midstride import Concurrent, ConcurrentVector, PerStep

ENVS = ("HalfCheetah-v5", "Reacher-v5", "Humanoid-v5")
KNOWLEDGE = ("previous_action", "selection_time")
STEPS = 1000  # of one environment
NUM_ENVS, VECTOR_STEPS, STEP_S = 256, 300, 0.02
REPEATS = 11


def run() -> list[Figure]:
    return [figure for env_id in ENVS for figure in of_one(env_id)] + of_many()


def of_one(env_id: str) -> list[Figure]:
    """A latency of half a step, in the middle of the physics: the most work there is."""
    bare = gymnasium.make(env_id)
    inner: Any = bare.unwrapped
    latency = max(1, inner.frame_skip // 2) * inner.model.opt.timestep
    works = {
        "bare": stepper(bare),
        "": stepper(Concurrent(gymnasium.make(env_id), latency)),
        "-with-knowledge": stepper(Concurrent(gymnasium.make(env_id), latency, KNOWLEDGE)),
    }
    return [
        Figure(f"concurrent/steps-vs-bare/{env_id}{name}", value, "x", env_id, limit=1.0)
        for name, value in speed_ratios(works).items()
    ]


def of_many() -> list[Figure]:
    """Gymnasium's own vector environment, every environment and step with its own latency."""

    def cartpoles() -> Any:
        return gymnasium.make_vec(
            "CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point"
        )

    def reachers() -> Any:
        make = [lambda: gymnasium.make("Reacher-v5")] * 8
        return SyncVectorEnv(make, autoreset_mode=AutoresetMode.SAME_STEP)

    figures = []
    for name, make in ((f"CartPole-v1 x {NUM_ENVS}", cartpoles), ("Reacher-v5 x 8", reachers)):
        fixed = ConcurrentVector(make(), STEP_S, step_s=STEP_S)
        spread = PerStep((0.0, STEP_S, 3 * STEP_S))
        knowing = ConcurrentVector(make(), spread, step_s=STEP_S, knowledge=KNOWLEDGE)
        works = {
            "bare": vector_stepper(make()),
            "": vector_stepper(fixed),
            "-with-knowledge": vector_stepper(knowing),
        }
        figures += [
            Figure(f"concurrent-vector/steps-vs-bare/{name}{how}", value, "x", name, limit=1.0)
            for how, value in speed_ratios(works).items()
        ]
    return figures


def stepper(env: gymnasium.Env[Any, Any]) -> Callable[[], None]:
    """Steps with actions that were chosen before, and resets where an episode ends."""
    space = env.action_space
    assert space.shape is not None
    actions = np.random.default_rng(0).uniform(-0.4, 0.4, (STEPS, *space.shape)).astype(np.float32)

    def work() -> None:
        env.reset(seed=0)
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return work


def vector_stepper(envs: Any) -> Callable[[], None]:
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(VECTOR_STEPS)]

    def work() -> None:
        envs.reset(seed=0)
        for action in actions:
            envs.step(action)

    return work


def speed_ratios(works: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Speed of each against "bare": the median of ratios of turns taken one right after another."""
    found: dict[str, list[float]] = {name: [] for name in works if name != "bare"}
    for repeat in range(REPEATS + 1):
        bare_s = seconds(works["bare"])
        for name in found:
            ratio = bare_s / seconds(works[name])
            if repeat:  # the first round warms up
                found[name].append(ratio)
    return {name: float(np.median(ratios)) for name, ratios in found.items()}
