"""The belt: a tray of objects that is carried past the arm, back and forth, at times of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from midstride.flight import NEVER, Ticks
from midstride.tasks.grasp.model import TICK_S

Array = NDArray[np.floating]

HALF_LENGTH_M = 0.2  # the tray's middle turns back here at the latest
REVERSES_AFTER_S = (0.5, 2.0)  # if it does so at random times
_LONGEST_S = 60.0  # after it the belt stands
MOST_CHANGES = int(_LONGEST_S / REVERSES_AFTER_S[0]) + 2


class Belt:
    """How fast the belts of n environments are told to run, and when that changes."""

    def __init__(self, n: int) -> None:
        self.begins = np.zeros(n)  # where the tray is at the start of the episode
        self._from = np.full((n, MOST_CHANGES), NEVER)  # ticks
        self._speed = np.zeros((n, MOST_CHANGES))

    def draw(
        self, i: int, rng: np.random.Generator, speeds_m_s: tuple[float, float], reverses: bool
    ) -> None:
        """The belt of environment i in a new episode: speed, direction, times at which it turns."""
        speed = rng.uniform(*speeds_m_s) * rng.choice([-1, 1])
        place = self.begins[i] = rng.uniform(-HALF_LENGTH_M, HALF_LENGTH_M) / 2  # in sight
        self._from[i], self._speed[i] = NEVER, 0.0
        self._from[i, 0] = 0
        if abs(speed) < 1e-9:
            return
        tick = 0
        for k in range(MOST_CHANGES - 1):
            self._from[i, k], self._speed[i, k] = tick, speed
            to_end_s = (HALF_LENGTH_M - np.sign(speed) * place) / abs(speed)
            after_s = min(to_end_s, rng.uniform(*REVERSES_AFTER_S)) if reverses else to_end_s
            ticks = max(1, int(after_s / TICK_S))
            place += speed * ticks * TICK_S
            tick, speed = tick + ticks, -speed
        self._from[i, MOST_CHANGES - 1] = tick

    def speed_m_s(self, now: Ticks) -> Array:
        """What the belts are told, (n,), at ticks since the start of the episode."""
        k = (self._from <= now[:, None]).sum(axis=1) - 1
        return np.asarray(self._speed[np.arange(len(now)), k])

    def until_change(self, now: Ticks) -> Ticks:
        """Ticks to the next change, (n,)."""
        later = np.where(self._from > now[:, None], self._from, NEVER)
        return np.asarray(later.min(axis=1) - now)
