"""Shared helpers. Every test that draws random numbers names its seed."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from midstride.envs import TaskVectorEnv

settings.register_profile(
    "midstride",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("midstride")

TASK_NAMES = ("pointmass", "cartpole", "pendulum")


@pytest.fixture(params=TASK_NAMES)
def task_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def random_rollout(env: TaskVectorEnv, steps: int, seed: int = 0) -> list[tuple]:
    """Step with random actions; returns what each step returned."""
    env.action_space.seed(seed)
    return [env.step(env.action_space.sample()) for _ in range(steps)]


def assert_columns_alive(observations: np.ndarray, names: tuple[str, ...]) -> None:
    """Every column changes over time: a dead feature teaches nothing."""
    spread = observations.reshape(-1, len(names)).std(axis=0)
    dead = [name for name, value in zip(names, spread, strict=True) if not value > 1e-6]
    assert not dead, f"dead columns: {dead}"
