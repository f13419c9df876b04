"""The reference: a point that moves to its goal with limited speed and acceleration.

It keeps its velocity when the goal changes: an action that is pre-empted does not stop dead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from midstride.tasks.grasp.kinematics import difference

Array = NDArray[np.floating]

_CAUTION = 0.8  # share of the deceleration that is planned with


@dataclass(frozen=True)
class Limits:
    """Of the reference: metres and radians, per second and per second squared."""

    speed: float = 0.2
    acceleration: float = 1.2
    yaw_speed: float = 2.0
    yaw_acceleration: float = 12.0


def advance(
    reference: Array, velocity: Array, goal: Array, dt_s: Array, limits: Limits
) -> tuple[Array, Array]:
    """Reference and velocity (n, 4) after dt_s (n,), on the way to goals (n, 4)."""
    to_go = difference(goal, reference)
    dt = dt_s[:, None]
    distance = np.linalg.norm(to_go[:, :3], axis=1, keepdims=True) + 1e-12
    braking = np.sqrt(2 * _CAUTION * limits.acceleration * distance)
    speed = np.minimum(np.minimum(limits.speed, braking), distance / dt)
    change = to_go[:, :3] / distance * speed - velocity[:, :3]
    size = np.linalg.norm(change, axis=1, keepdims=True) + 1e-12
    change *= np.minimum(1, limits.acceleration * dt / size)

    turn = to_go[:, 3:]
    angle = np.abs(turn)
    braking = np.sqrt(2 * _CAUTION * limits.yaw_acceleration * angle)
    rate = np.sign(turn) * np.minimum(np.minimum(limits.yaw_speed, braking), angle / dt)
    most = limits.yaw_acceleration * dt
    velocity = velocity + np.concatenate(
        [change, np.clip(rate - velocity[:, 3:], -most, most)], axis=1
    )
    return reference + velocity * dt, velocity
