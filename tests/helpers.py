"""Helpers that several test files use."""

import time

import numpy as np

from midstride.tasks.env import TaskVectorEnv

TASK_NAMES = ("pointmass", "cartpole", "pendulum")
ENV_IDS = ("midstride/PointMass-v0", "midstride/CartpoleSwingup-v0", "midstride/PendulumSwingup-v0")
ALL_KNOWLEDGE = ("previous_action", "selection_time", "vector_to_go")


def random_rollout(env: TaskVectorEnv, steps: int, seed: int = 0) -> list[tuple]:
    """Step with random actions; returns what each step returned."""
    env.action_space.seed(seed)
    return [env.step(env.action_space.sample()) for _ in range(steps)]


def assert_columns_alive(observations: np.ndarray, names: tuple[str, ...]) -> None:
    """Every column changes over time: a dead feature teaches nothing."""
    spread = observations.reshape(-1, len(names)).std(axis=0)
    dead = [name for name, value in zip(names, spread, strict=True) if not value > 1e-6]
    assert not dead, f"dead columns: {dead}"


def wait_until(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)
