"""What a robot remembers of a run: where it was at every turn, and at every switch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from midstride.realtime.robot import Array, Declared, Robot, State

if TYPE_CHECKING:
    from midstride.sim.camera import Image

TURN_S = 0.02  # between two moments
LONGEST_S = 600.0  # of a run that is remembered


@dataclass(frozen=True)
class Moment:
    """Where the robot was, by its own measurement; all on the robot's clock.

    number: of the decision in force; at a switch, of the one that has just come into force, and
        nothing of it is done
    position, target: (controlled dims,), where it is told places
    score: of a simulated robot, since its episode began
    """

    at_s: float
    number: int
    is_switch: bool
    state: State
    position: Array | None
    target: Array | None
    score: float


@runtime_checkable
class Recalls(Protocol):
    """A robot that can say what it did, once it is no longer armed; `Declared.recalls` says so."""

    def recall(self) -> list[Moment]:
        """What happened since it was armed last."""
        ...

    def picture(self, index: int) -> Image:
        """What it looked like at one of these moments, for people."""
        ...


def recalling(robot: Robot, declared: Declared) -> Recalls | None:
    """The robot as one that recalls, if it is."""
    return robot if declared.recalls and isinstance(robot, Recalls) else None
