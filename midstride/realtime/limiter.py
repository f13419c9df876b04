"""What the actuators are told never leaves the limits: a reference with limited jerk (Ruckig).

Whatever place is asked for, the reference goes there within the limits of position, velocity,
acceleration and jerk; told to stop, it comes to rest as fast as they allow. Every place that is
aimed at lies within the positions, so the way to it and every stop on the way do too: braking never
takes more room than the plan that it interrupts, which ended at rest within them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from midstride.extras import needed_by
from midstride.realtime.robot import Array, Limits


class Limiter:
    """The reference of a robot's controlled dimensions, moved on by one tick at a time."""

    def __init__(self, limits: Limits, tick_s: float) -> None:
        with needed_by("a robot that is kept within limits"):
            import ruckig
        self.limits = limits
        self._ruckig = ruckig
        size = limits.low.size
        self._generator = ruckig.Ruckig(size, tick_s)
        self._input: Any = ruckig.InputParameter(size)
        self._output: Any = ruckig.OutputParameter(size)
        self._input.synchronization = ruckig.Synchronization.No
        self._input.max_velocity = limits.velocity.tolist()
        self._input.max_acceleration = limits.acceleration.tolist()
        self._input.max_jerk = limits.jerk.tolist()
        self.target = np.zeros(size)
        self.place(np.clip(np.zeros(size), limits.low, limits.high))

    def place(self, position: Array) -> None:
        """The reference is at rest there: where the robot was found."""
        position = np.clip(position, self.limits.low, self.limits.high)
        zeros = [0.0] * len(position)
        self._input.current_position = position.tolist()
        self._input.current_velocity = self._input.current_acceleration = zeros
        self._input.target_velocity = self._input.target_acceleration = zeros
        self._generator.reset()
        self.aim(position)

    def aim(self, target: Array) -> Array:
        """Go there from now on; the place within the limits that is gone to."""
        self.target = np.clip(target, self.limits.low, self.limits.high)
        self._input.control_interface = self._ruckig.ControlInterface.Position
        self._input.target_position = self.target.tolist()
        return self.target

    def brake(self) -> None:
        """Come to rest from now on, as soon as the limits allow."""
        self._input.control_interface = self._ruckig.ControlInterface.Velocity

    def step(self) -> Array:
        """The reference a tick later."""
        if not self._updated():
            self.brake()
            if not self._updated():  # nothing can be planned: the reference stays
                return self.position
        self._output.pass_to_input(self._input)
        # Rounding alone can be outside, by the last digit.
        return np.clip(self.position, self.limits.low, self.limits.high)

    def _updated(self) -> bool:
        result = self._generator.update(self._input, self._output)
        return result in (self._ruckig.Result.Working, self._ruckig.Result.Finished)

    @property
    def position(self) -> Array:
        return np.array(self._input.current_position)

    @property
    def velocity(self) -> Array:
        return np.array(self._input.current_velocity)

    @property
    def acceleration(self) -> Array:
        return np.array(self._input.current_acceleration)

    @property
    def is_at_rest(self) -> bool:
        return bool(
            (np.abs(self.velocity) < 1e-9).all() and (np.abs(self.acceleration) < 1e-6).all()
        )


def stop_path(
    limits: Limits, velocity: Sequence[float] | Array, acceleration: Sequence[float] | Array
) -> tuple[Array, Array]:
    """How far (signed) and for how long each dimension still moves when it is stopped."""
    with needed_by("the way to a stop"):
        import ruckig
    size = limits.low.size
    one: Any = ruckig.InputParameter(size)
    one.control_interface = ruckig.ControlInterface.Velocity
    one.synchronization = ruckig.Synchronization.No
    one.current_velocity, one.current_acceleration = list(velocity), list(acceleration)
    one.max_velocity = limits.velocity.tolist()
    one.max_acceleration, one.max_jerk = limits.acceleration.tolist(), limits.jerk.tolist()
    path: Any = ruckig.Trajectory(size)
    ruckig.Ruckig(size).calculate(one, path)
    end, _, _ = path.at_time(path.duration)
    return np.array(end), np.array(path.independent_min_durations)
