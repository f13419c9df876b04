"""Helpers that several test files use."""

import gc
import time
from pathlib import Path

import numpy as np
from gymnasium import spaces

from midstride.envs.learnable import Hints
from midstride.envs.vector import Step
from midstride.knowledge import Layout
from midstride.latency import Fixed
from midstride.tasks.env import TaskVectorEnv
from midstride.timing import Timing

TASK_NAMES = (
    "pointmass",
    "cartpole",
    "pendulum",
    "balance",
)  # episodes end by their time limit alone
EVERY_TASK = (*TASK_NAMES, "catch", "catch-drag", "catch-bounce")
ENV_IDS = (
    "midstride/PointMass-v0", "midstride/CartpoleSwingup-v0", "midstride/PendulumSwingup-v0",
    "midstride/Catch-v0", "midstride/CatchDrag-v0", "midstride/CatchBounce-v0",
    "midstride/Balance-v0",
)  # fmt: skip
ALL_KNOWLEDGE = ("previous_action", "pending_actions", "selection_time", "vector_to_go")


def resident_kb() -> int:
    """Memory that this process has now, not at its peak: a hungrier test before does not count."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1])


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


class FakeEnvs:
    """What agents ask of environments, without the environments."""

    def __init__(self, observation, action, num_envs=4, layout=None, **hints):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation, action
        columns = tuple(map(str, range(observation.shape[0]))) if layout is None else ()
        self.layout = layout or Layout(columns, ("a",), None)
        self.timing = Timing(Fixed(0.025), period_s=0.05)
        self.hints = Hints(**hints)
        self.camera_s = 0.0


def flat_envs(columns, actions, num_envs=4, **hints):
    """Flat observations, discrete actions."""
    space = spaces.Box(-np.inf, np.inf, (columns,), np.float32)
    return FakeEnvs(space, spaces.Discrete(actions), num_envs, **hints)


def step_of(**fields):
    """A step with the given fields, the others nothing; `notes` as they are."""
    n = len(fields["observation_capture"])
    observation = fields["observation_capture"]
    zeros, no = np.zeros(n), np.zeros(n, bool)
    usual = {
        "action": np.zeros(n, int), "reward_before_switch": zeros, "reward_after_switch": zeros,
        "observation_switch": observation, "observation_next": observation, "latency_s": zeros,
        "period_s": np.ones(n), "terminated": no, "truncated": no,
    }  # fmt: skip
    return Step(**{**usual, **fields})
