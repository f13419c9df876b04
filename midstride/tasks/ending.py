"""Episodes that end by themselves: when, and what is measured of them then."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.envs.learnable import Array, Info, Mask
from midstride.flight import Ticks
from midstride.sim.task import Ended, Finish, Task

_JERK_S = 0.02  # between the places that jerk is computed from


class Ending:
    """What `task.finish` says of n environments, tick by tick.

    An episode that is finished goes on to the next capture, and ends there; nothing more counts.
    """

    def __init__(
        self, task: Task, finish: Finish, n: int, limit_ticks: int, latency_s: float | None
    ) -> None:
        """latency_s: that all decisions have, if it is always the same"""
        self._finish, self._controlled = finish, task.controlled.qpos
        self._latency_s = latency_s
        self.tick_s = task.model.opt.timestep
        self.over = np.zeros(n, bool)
        self._after_ticks = np.zeros(n, np.int64)  # the start of the episode
        self._start = np.zeros((n, task.model.nq)), np.zeros((n, task.model.nv))
        self._end = np.zeros((n, task.model.nq)), np.zeros((n, task.model.nv))
        self._trail = np.zeros((n, limit_ticks + 1, len(self._controlled)))  # places at every tick

    def begin(self, ids: NDArray[np.integer], qpos: Array, qvel: Array) -> None:
        """Episodes begin in environments `ids`, from where all environments are now."""
        self.over[ids] = False
        for start, now in zip(self._start, (qpos, qvel), strict=True):
            start[ids] = now[ids]
        self._trail[ids, 0] = qpos[np.ix_(ids, self._controlled)]

    def watch(self, rows: NDArray[np.integer], now: Ticks, qpos: Array, qvel: Array) -> None:
        """What came of the ticks after `now` in environments `rows`; qpos, qvel (rows, ticks, _)"""
        ticks = qpos.shape[1]
        columns = now[rows, None] + np.arange(1, ticks + 1)
        self._trail[rows[:, None], columns] = qpos[..., self._controlled]
        happened = self._finish.happens(qpos, qvel)
        if not happened.any():
            return
        which = np.flatnonzero(happened.any(axis=1) & ~self.over[rows])
        first, ids = happened[which].argmax(axis=1), rows[which]
        self.over[ids] = True
        self._after_ticks[ids] = now[ids] + first + 1
        for end, record in zip(self._end, (qpos, qvel), strict=True):
            end[ids] = record[which, first]

    def report(self, ended: Mask, now: Ticks) -> Info:
        """What is measured of episodes that end now; of others, and of what never came, nothing."""
        ids = np.flatnonzero(ended & self.over)
        after = np.where(self.over, self._after_ticks, now)
        start, end = ((qpos[ids], qvel[ids]) for qpos, qvel in (self._start, self._end))
        after_s = self._after_ticks[ids] * self.tick_s
        found: dict[str, Any] = self._finish.measures(Ended(start, *end, after_s, self._latency_s))
        found["jerk"] = self._jerk(ids)
        info: Info = {"duration_s": after * self.tick_s}
        for name, values in found.items():
            info[name] = np.zeros(len(self.over), np.asarray(values).dtype)
            info[name][ids] = values
        return info

    def _jerk(self, ids: NDArray[np.integer]) -> Array:
        """Root mean square of the third derivative of the controlled place, up to the end."""
        stride = max(1, round(_JERK_S / self.tick_s))
        places = self._trail[ids, ::stride]
        third = np.diff(places, n=3, axis=1) / (stride * self.tick_s) ** 3
        last = self._after_ticks[ids] // stride  # index of the last place
        counts = np.arange(third.shape[1])[None] + 3 <= last[:, None]
        squared = np.where(counts, (third**2).sum(axis=2), 0.0).sum(axis=1)
        return np.sqrt(squared / np.maximum(counts.sum(axis=1), 1))
