"""The physics of many environments of one task, on `mujoco.batch`.

All environments that are under way are stepped with one C++ call from each event of the clock to
the next. With one latency for all that is one call before the switch and one after it; with
several latencies in the batch, one more call for each further instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from midstride.envs.faults import Fault
from midstride.envs.learnable import Array, Mask
from midstride.flight import Flight, Ticks
from midstride.knowledge import vector_to_go
from midstride.sim.task import Task
from midstride.tasks.ending import Ending


@dataclass(frozen=True)
class Snapshot:
    """What can be measured in n environments at an instant."""

    qpos: Array  # (n, nq)
    qvel: Array  # (n, nv)
    vector_to_go: Array  # (n, controlled dims)


class TaskPlant:
    """Physics of `n` environments of one task; rewards are summed before and after the switch."""

    def __init__(
        self, task: Task, flight: Flight, threads: int, latency_s: float | None = None
    ) -> None:
        """latency_s: that all decisions have, if it is always the same"""
        self.task, self._flight = task, flight
        limit_ticks = round(task.time_limit_s / task.model.opt.timestep)
        finish = task.finish
        self.ending = None
        if finish is not None:
            self.ending = Ending(task, finish, flight.n, limit_ticks, latency_s)
        self.batch = Batch(task.model, flight.n, threads)
        self.qpos = self.batch.bind("qpos")
        self.qvel = self.batch.bind("qvel")
        self.target = self.batch.bind("ctrl")  # of the action in force, (n, controlled dims)
        self.rewards = np.zeros((2, flight.n))
        self.at_switch: Snapshot | None = None  # filled in at switches, if it is there
        # For films: go on by so many ticks at once at most, and tell how many it were.
        self.watched: tuple[int, Callable[[int], None]] | None = None
        self._rows = np.arange(flight.n)
        self._weight = task.reward_per_s * task.model.opt.timestep
        self._dims = len(task.controlled.names)

    def begin(self, ids: NDArray[np.integer], rngs: Sequence[np.random.Generator]) -> None:
        """Start episodes in environments `ids`, each from its generator."""
        self.batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        for i in ids:
            self.qpos[i], self.qvel[i] = self.task.initial(rngs[i])
        # Nothing is in flight: the actuators hold the place where the episode starts.
        self.target[ids] = self.qpos[np.ix_(ids, self.task.controlled.qpos)]
        if self.ending is not None:
            self.ending.begin(ids, self.qpos, self.qvel)

    def advance(self, running: Mask, ticks: int, ahead: Ticks) -> int:
        whole = np.count_nonzero(running) == len(running)
        ids = None if whole else np.flatnonzero(running)
        ticks = ticks if self.watched is None else min(ticks, self.watched[0])
        record = self.batch.rollout(ticks, record=("qpos", "qvel"), ids=ids)
        reward = self.task.reward(record["qpos"], record["qvel"]).sum(axis=1) * self._weight
        rows = self._rows if ids is None else ids
        self.rewards[self._flight.newest_in_force.astype(np.intp)[rows], rows] += reward
        if self.ending is not None:
            self.ending.watch(rows, self._flight.now, record["qpos"], record["qvel"])
        if self.watched is not None:
            self.watched[1](ticks)
        return ticks

    def switch(self, which: Mask, actions: NDArray[Any]) -> None:
        """A new target, relative to where we are now."""
        controlled = self.task.controlled
        whole = np.count_nonzero(which) == len(which)
        rows = slice(None) if whole else np.flatnonzero(which)
        position = self.qpos[rows][:, controlled.qpos]
        target = position + actions[rows, : self._dims] * controlled.scale
        self.target[rows] = np.clip(target, controlled.low, controlled.high)
        if self.at_switch is not None:
            self.record(self.at_switch, rows)

    def at_rest(self) -> Mask:
        raise NotImplementedError("these tasks have a period")

    def snapshot(self) -> Snapshot:
        """A measurement of now. Copies: the physics goes on, the snapshot does not."""
        controlled = self.task.controlled
        position = self.qpos[:, controlled.qpos]
        to_go = vector_to_go(self.target, position, controlled.scale, controlled.wraps)
        return Snapshot(self.qpos.copy(), self.qvel.copy(), to_go)

    def record(self, into: Snapshot, rows: Any) -> None:
        """Measure some environments now."""
        now = self.snapshot()
        into.qpos[rows], into.qvel[rows] = now.qpos[rows], now.qvel[rows]
        into.vector_to_go[rows] = now.vector_to_go[rows]

    def close(self) -> None:
        """Free the physics and its threads; views of it would keep them."""
        del self.batch, self.qpos, self.qvel, self.target

    def check(self) -> None:
        """An error if the physics has become unstable anywhere."""
        if self.batch.warning.any():
            unstable = np.flatnonzero(self.batch.warning.any(axis=(1, 2))).tolist()
            raise Fault(
                f"the physics of {self.task.name} became unstable in environments {unstable}"
            )
