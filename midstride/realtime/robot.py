"""What a robot is to the runtime: LeRobot's verbs, timestamps, and what it declares of itself.

Nothing has to be inherited. `get_observation` says when it was captured, `send_action` what was
actually sent and when the robot took it, `stop` brings the robot to rest and keeps it there until
it is armed again. A robot is only ever called from one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[np.floating]
# idle: never armed; armed: it moves as it is told; stopping, stopped: after a fault, until armed.
State = Literal["idle", "armed", "stopping", "stopped"]


@dataclass(frozen=True)
class Controlled:
    """Dimensions that are told a place to go to: `sim.task.Controlled` as a robot declares it."""

    names: tuple[str, ...]
    scale: Array  # displacement of an action of 1
    wraps: NDArray[np.bool_]  # angles that go round


@dataclass(frozen=True)
class Limits:
    """Of what the actuators are told, for each controlled dimension; enforced by the robot."""

    low: Array
    high: Array
    velocity: Array  # per second, and so on
    acceleration: Array
    jerk: Array

    def __post_init__(self) -> None:
        every = {name: np.atleast_1d(np.asarray(getattr(self, name), float)) for name in _LIMITS}
        size = every["low"].size
        for name, values in every.items():
            if values.shape != (size,) or not np.isfinite(values).all():
                raise ValueError(f"the limits {name} must be {size} finite numbers, got {values}")
            if name in _LIMITS[2:] and not (values > 0).all():
                raise ValueError(f"the limits of {name} must be greater than 0, got {values}")
            object.__setattr__(self, name, values)
        if not (every["low"] < every["high"]).all():
            raise ValueError(
                f"positions must have a lowest below their highest, got {every['low']} and "
                f"{every['high']}"
            )


_LIMITS = ("low", "high", "velocity", "acceleration", "jerk")


@dataclass(frozen=True)
class Declared:
    """What a robot says of itself when it is connected."""

    name: str
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    columns: tuple[str, ...]  # of a flat observation; empty where it is not
    controlled: Controlled | None = None  # None: its actions are no places to go to
    limits: Limits | None = None
    watchdog_s: float | None = None  # it stops by itself without a fresh command for so long
    pauses: bool = False  # its world can be made to wait, as only a simulation's can
    # It says when it has arrived where it was told to go, which takes so long at most.
    arrives_s: float | None = None
    recalls: bool = False  # it says afterwards where it was, and draws it (`recording.py`)


@dataclass(frozen=True)
class Observation:
    """What was measured at `captured_s`, on the clock that the runtime reads.

    position, target: (controlled dims,) where the robot is, and the place that it was told last
    over, score: whether the episode of a simulated robot has ended, and its reward so far
    late_ticks: since it was armed, by a process that serves it: how many it came too late for
    """

    values: Any
    captured_s: float
    position: Array | None = None
    target: Array | None = None
    state: State = "armed"
    fault: str | None = None
    over: bool = False
    score: float | None = None
    late_ticks: int = 0


@dataclass(frozen=True)
class Sent:
    """What came of an action: what was sent to the actuators, and when.

    action: None where it stays where it is
    refused: why the robot did not take it; None if it did
    """

    action: Any
    taken_s: float
    refused: str | None = None


@dataclass(frozen=True)
class Stamp:
    """Which decision a command is, and when its observation was captured; -1: no decision."""

    number: int = -1
    captured_s: float = field(default=-np.inf)


class Stay(Enum):
    """In place of an action. None is no action: a policy that gives it is wrong."""

    STAY = "stay"


STAY = Stay.STAY


class Robot(Protocol):
    """What can be run. `arm` is of one that is at rest, and after a fault a person's word.

    `STAY` in place of an action lets it stay at its reference, the place that its actuators are
    told now. So does every command that is no decision (number -1), whatever comes with it.
    """

    @property
    def declared(self) -> Declared: ...

    def connect(self) -> None: ...

    def arm(self) -> None: ...

    def get_observation(self) -> Observation: ...

    def send_action(self, action: Any, stamp: Stamp) -> Sent: ...

    def stop(self) -> None: ...

    def disconnect(self) -> None: ...


class RobotFault(RuntimeError):
    """The robot stopped, or cannot be moved: what it said."""
