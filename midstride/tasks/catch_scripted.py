"""A catcher that nobody trained: it knows the ballistics, and what is in flight or not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from midstride.tasks.catch import DISPLACEMENT_M, DRAG_PER_M, SPEED_M_S, TAU_S, flight_s, fly
from midstride.tasks.env import TaskVectorEnv

Array = NDArray[np.floating]


def to_the_ball(envs: TaskVectorEnv, knows: bool = True) -> Array:
    """Actions (n, 1) that go to where the balls will come down.

    Counted from where the cup will be at the switch, by what is in force (for latencies up to the
    period); without that knowledge from where it is now, as if it stood still while one thinks.
    """
    tick_s = envs.timing.tick_s
    qpos, qvel = envs.plant.qpos, envs.plant.qvel
    left_s = flight_s(np.maximum(qpos[:, 2], 0), qvel[:, 2], tick_s)
    lands = qpos[:, 1] + qvel[:, 1] * left_s
    if envs.settings.task == "catch-drag":
        lands = _in_air(qpos[:, 1] + 1j * np.maximum(qpos[:, 2], 0), qvel[:, 1] + 1j * qvel[:, 2])
    cup = qpos[:, 0].copy()
    if knows and envs.settings.mode == "concurrent":
        most, share = SPEED_M_S * tick_s, -np.expm1(-tick_s / TAU_S)
        latency = envs.next_latency_ticks()
        for tick in range(int(latency.max())):
            step = np.clip(share * (envs.plant.target[:, 0] - cup), -most, most)
            cup += np.where(tick < latency, step, 0.0)
    return np.clip((lands - cup) / DISPLACEMENT_M, -1, 1)[:, None]


def _in_air(place: NDArray[np.complexfloating], velocity: NDArray[np.complexfloating]) -> Array:
    """Where balls come down that the air slows down, by Newton's method for the instant."""
    left_s = flight_s(place.imag, velocity.imag, 0.0)
    for _ in range(5):
        there, falling = fly(place, velocity, left_s, DRAG_PER_M)
        left_s = np.maximum(left_s - there.imag / np.minimum(falling.imag, -0.1), 0.0)
    return np.asarray(there.real)
