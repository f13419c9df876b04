"""What a task is: a model, how an episode starts, what is observed, what is rewarded."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from midstride.extras import missing

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Viewpoint:
    """Where a person looks from, and where to; z is up."""

    position: tuple[float, float, float]
    target: tuple[float, float, float]
    fov_deg: float  # vertical


@dataclass(frozen=True)
class Controlled:
    """The position-controlled dimensions of a task; each has one actuator, in the same order.

    An action is a displacement: at the switch the target becomes the position measured there
    plus the displacement, kept within [low, high].
    """

    names: tuple[str, ...]
    qpos: NDArray[np.intp]  # where their positions stand in qpos
    scale: Array  # displacement of an action of 1
    low: Array
    high: Array
    wraps: NDArray[np.bool_]  # angles that go round


@dataclass(frozen=True)
class Ended:
    """Episodes that ended by themselves, one a row."""

    start: tuple[Array, Array]  # qpos and qvel with which they began
    qpos: Array  # after the tick at which it happened
    qvel: Array
    after_s: Array  # (n,) from the start to the end of that tick
    latency_s: float | None  # that all decisions have; None: none, or not always the same


@dataclass(frozen=True)
class Finish:
    """What ends an episode before its time: something that happens at one tick."""

    happens: Callable[[Array, Array], NDArray[np.bool_]]  # (qpos, qvel) after a tick -> (...)
    measures: Callable[[Ended], dict[str, Array]]  # what is measured, (n,) each


@dataclass(frozen=True)
class Task:
    """Physics and purpose of one environment. The functions take any leading batch axes."""

    name: str
    model: mujoco.MjModel
    controlled: Controlled
    columns: tuple[str, ...]  # what each observed column is called
    observation_low: Array
    observation_high: Array
    time_limit_s: float
    reward_per_s: float  # weight of the reward's integral: returns lie in [0, 1000]
    period_s: float  # the default control period
    initial: Callable[[np.random.Generator], tuple[Array, Array]]  # (qpos, qvel) of an episode
    observe: Callable[[Array, Array], Array]  # (qpos, qvel) -> (..., columns)
    reward: Callable[[Array, Array], Array]  # (qpos, qvel) after a tick -> (...) in [0, 1]
    displacements: Callable[[int], Array]  # discrete actions -> (count, dims) in [-1, 1]
    marker: Callable[[Array, Array], Array]  # (qpos, target) -> world point of the target
    viewpoint: Viewpoint
    finish: Finish | None = None  # None: episodes end by their time limit alone


def suite_spec(name: str) -> mujoco.MjSpec:
    """A model of the DeepMind Control suite, found without importing the package.

    Importing dm_control takes seconds and looks for a display; its model files need neither.
    """
    package = importlib.util.find_spec("dm_control")
    if package is None or not package.submodule_search_locations:
        raise missing(f"the model of {name}", "dm_control")
    root = Path(package.submodule_search_locations[0])
    return mujoco.MjSpec.from_file(str(root / "suite" / f"{name}.xml"))


def motor_to_position(
    spec: mujoco.MjSpec, kp: float, kv: float, target_range: tuple[float, float] | None
) -> None:
    """Replace the model's only motor by a position actuator that can push no harder."""
    (actuator,) = spec.actuators
    limit = actuator.gear[0] * actuator.ctrlrange[1]
    actuator.set_to_position(kp=kp, kv=kv)
    actuator.gear[0] = 1
    actuator.forcelimited = True
    actuator.forcerange = [-limit, limit]
    actuator.ctrllimited = target_range is not None
    actuator.ctrlrange = target_range or (0, 0)


def line_of_displacements(count: int) -> Array:
    """Evenly spaced displacements of a single dimension, (count, 1); an odd count has a 0."""
    return np.linspace(-1, 1, count)[:, None]


def gaussian_tolerance(x: Array, margin: float) -> Array:
    """dm_control's `tolerance` around 0: 1 at 0, 0.1 at `margin`."""
    return np.exp((np.log(0.1) / margin**2) * x * x)
