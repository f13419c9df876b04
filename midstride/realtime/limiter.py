"""What the actuators are told never leaves the limits: a reference with limited jerk (Ruckig).

Whatever place is asked for, the reference goes there within the limits of position, velocity,
acceleration and jerk; told to stop, it comes to rest as fast as they allow. Every place that is
aimed at lies within the positions, so the way to it and every stop on the way do too: braking never
takes more room than the plan that it interrupts, which ended at rest within them.

How it goes there may be a body's own business, a straight line for instance: a `Guide` says how
fast to move until its next turn. It is followed while it, and a stop from any of its ticks, stay
within the limits; else the reference goes to its target as fast as they allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from midstride.extras import needed_by
from midstride.realtime.robot import Array, Limits

_ROUNDED = 1e-9  # what arithmetic alone can be outside of limits
_EASIER = (1.0, 1 - 1e-6, 1 - 1e-5, 1 - 1e-4, 1 - 1e-3)


class Guide(NamedTuple):
    """Says how fast to move on: (place, velocity, target) -> velocity, each (controlled dims,).

    nan where a dimension goes to its target as fast as the limits allow
    ticks: from one of its turns to the next; a new target is a turn, too. Where it is not followed,
        it is not asked again until there is one
    """

    velocity: Callable[[Array, Array, Array], Array]
    ticks: int


class Limiter:
    """The reference of a robot's controlled dimensions, moved on by one tick at a time.

    It always follows a plan that is whole, and ends at rest within the limits. Where Ruckig finds
    none (it gives up on states that lie exactly between two shapes of a profile), a little less of
    the jerk is planned with: so little that it brakes in the same room. Should that fail too, the
    plan before is followed, and the next tick tries again.
    """

    def __init__(self, limits: Limits, tick_s: float, guide: Guide | None = None) -> None:
        with needed_by("a robot that is kept within limits"):
            import ruckig
        self.limits, self._tick_s, self._ruckig = limits, tick_s, ruckig
        if guide is not None and guide.ticks < 1:
            raise ValueError(f"a guide's turns must be at least a tick apart, got {guide.ticks}")
        self._guide = guide
        self._size = limits.low.size
        self._generator: Any = ruckig.Ruckig(self._size)
        self.place(np.clip(np.zeros(self._size), limits.low, limits.high))

    def place(self, position: Array) -> None:
        """The reference is at rest there: where the robot was found."""
        self.position: Array = np.clip(position, self.limits.low, self.limits.high)
        self.planned = self.position  # the same before rounding is cut off
        self.velocity: Array = np.zeros(self._size)
        self.acceleration: Array = np.zeros(self._size)
        self.target = self.position.copy()
        self._path: Any = None  # None: at rest
        self._time_s = 0.0
        self._is_unplanned = self._brakes = False
        self._stop: Any = None  # the way to rest from where the guide's turn ends; None: unguided

    def aim(self, target: Array) -> Array:
        """Go there from now on; the place within the limits that is gone to."""
        self.target = np.clip(target, self.limits.low, self.limits.high)
        self._is_unplanned, self._brakes = True, False
        return self.target

    def brake(self) -> None:
        """Come to rest from now on, as soon as the limits allow."""
        if not self._brakes and not self.is_at_rest:
            self._is_unplanned = True
        self._brakes = True

    def step(self) -> Array:
        """The reference a tick later."""
        if self._stop is not None and self._time_s > self._turn_s - self._tick_s / 2:
            # The stop is what follows, unless the guide leads on.
            self._path, self._time_s, self._stop = self._stop, 0.0, None
            self._is_unplanned = True
        if self._is_unplanned:
            self._plan()
        if self._path is not None:
            self._time_s += self._tick_s
            end_s = np.inf if self._stop is not None else self._path.duration
            at = self._path.at_time(min(self._time_s, end_s))
            self.planned, self.velocity, self.acceleration = (np.array(part) for part in at)
            # Rounding alone can be outside, by the last digit.
            self.position = np.clip(self.planned, self.limits.low, self.limits.high)
            if self._time_s >= end_s:  # not a rounding error moves on
                self.velocity, self.acceleration = np.zeros(self._size), np.zeros(self._size)
                self._path = None
        return self.position

    @property
    def _turn_s(self) -> float:
        """From one of the guide's turns to the next."""
        return self._tick_s * self._guide.ticks if self._guide is not None else np.inf

    def _plan(self) -> None:
        """From the state of now to the target, or to rest; the plan before, if there is none."""
        if self._brakes and self.is_at_rest:
            self._is_unplanned = False
            return
        if self._guide is not None and not self._brakes:
            now = self.position.copy(), self.velocity.copy(), self.target.copy()
            asked_for = self._guide.velocity(*now)
            if not np.isnan(asked_for).all() and self._be_guided(asked_for):
                return
        wanted = None if self._brakes else np.full(self._size, np.nan)
        path = self._way(self.position, self.velocity, self.acceleration, wanted)
        if path is not None:
            self._follow(path, None)

    def _be_guided(self, velocity: Array) -> bool:
        """Move so until the guide's next turn, if that and every stop on the way are allowed."""
        most = self.limits.velocity
        path = self._way(
            self.position, self.velocity, self.acceleration, np.clip(velocity, -most, most)
        )
        if path is None or self._guide is None:
            return False
        stop = None
        for tick in range(1, self._guide.ticks + 1):
            place, *moving = (np.array(part) for part in path.at_time(tick * self._tick_s))
            stop = self._way(place, moving[0], moving[1], None)
            if stop is None or not self._is_within(place, stop.at_time(stop.duration)[0]):
                return False
        self._follow(path, stop)
        return True

    def _is_within(self, *places: Sequence[float] | Array) -> bool:
        low, high = self.limits.low - _ROUNDED, self.limits.high + _ROUNDED
        return all(((low <= place) & (place <= high)).all() for place in places)

    def _follow(self, path: Any, stop: Any) -> None:
        self._path, self._stop, self._time_s, self._is_unplanned = path, stop, 0.0, False

    def _way(self, place: Array, velocity: Array, acceleration: Array, wanted: Array | None) -> Any:
        """Ruckig's path from a state, or None if it finds none.

        wanted: velocities to reach; nan: rest at the target; None: rest anywhere
        """
        kinds, result = self._ruckig.ControlInterface, self._ruckig.Result
        for share in _EASIER:
            asked = _asked(self._ruckig, self.limits, velocity, acceleration, share)
            asked.current_position = place.tolist()
            if wanted is not None:
                to_target = np.isnan(wanted)
                asked.per_dof_control_interface = [
                    kinds.Position if it_is else kinds.Velocity for it_is in to_target
                ]
                asked.target_position = self.target.tolist()
                asked.target_velocity = np.where(to_target, 0.0, wanted).tolist()
            path = self._ruckig.Trajectory(self._size)
            try:
                found = self._generator.calculate(asked, path)
            except self._ruckig.RuckigError:
                continue
            if found in (result.Working, result.Finished):
                return path
        return None

    @property
    def is_at_rest(self) -> bool:
        return self._path is None


def _asked(
    ruckig: Any, limits: Limits, velocity: Sequence[float] | Array, acceleration: Any, share: float
) -> Any:
    """A stop from this state, as Ruckig is asked for it; share: of the jerk."""
    asked: Any = ruckig.InputParameter(limits.low.size)
    asked.control_interface = ruckig.ControlInterface.Velocity
    asked.synchronization = ruckig.Synchronization.No
    asked.current_velocity, asked.current_acceleration = list(velocity), list(acceleration)
    asked.max_velocity = limits.velocity.tolist()
    asked.max_acceleration = limits.acceleration.tolist()
    asked.max_jerk = (share * limits.jerk).tolist()
    return asked


def stop_path(
    limits: Limits, velocity: Sequence[float] | Array, acceleration: Sequence[float] | Array
) -> tuple[Array, Array]:
    """How far (signed) and for how long each dimension still moves when it is stopped."""
    with needed_by("the way to a stop"):
        import ruckig
    path: Any = ruckig.Trajectory(limits.low.size)
    for share in _EASIER:
        try:
            asked = _asked(ruckig, limits, velocity, acceleration, share)
            ruckig.Ruckig(limits.low.size).calculate(asked, path)
            break
        except ruckig.RuckigError:
            continue
    end, _, _ = path.at_time(path.duration)
    return np.array(end), np.array(path.independent_min_durations)
