"""Many concurrent environments of one task, stepped together on `mujoco.batch.Batch`.

This is the one place where latency is applied. A period is walked along its events, the switches
and ends of all environments in order of time: between two events one C++ call steps every
environment that is still under way. With one latency for all that is one call before the switch
and one after it; with several latencies in the batch, one more call for each further instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from midstride.knowledge import vector_to_go
from midstride.sim.task import Task
from midstride.timing import Timing, to_ticks

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Snapshot:
    """What can be measured in n environments at an instant."""

    qpos: Array  # (n, nq)
    qvel: Array  # (n, nv)
    vector_to_go: Array  # (n, controlled dims)


@dataclass(frozen=True)
class Period:
    """What happened from one capture to the next; first axis: environments."""

    reward_before_switch: Array  # integral up to the switch, with the action in flight
    reward_after_switch: Array  # integral from the switch on, with the new action
    latency_ticks: NDArray[np.int64]  # capture to switch
    period_ticks: NDArray[np.int64]  # capture to next capture
    at_switch: Snapshot  # the new action in flight, nothing of it done


class Simulation:
    """`n` environments of one task, each with its own latencies, clock and resets."""

    def __init__(self, task: Task, timing: Timing, n: int, threads: int) -> None:
        if timing.tick_s != task.model.opt.timestep:
            raise ValueError("timing and task must have the same physics tick")
        self.task = task
        self.timing = timing
        self.n = n
        self.limit_ticks = to_ticks(task.time_limit_s, timing.tick_s, "time limit")
        self.batch = Batch(task.model, n, threads)
        self.qpos = self.batch.bind("qpos")
        self.qvel = self.batch.bind("qvel")
        self.target = self.batch.bind("ctrl")  # of the action in flight, (n, controlled dims)
        self.elapsed_ticks = np.zeros(n, np.int64)

        # Latencies of a whole episode are drawn at its reset from the environment's own
        # generator: no Python loop while stepping, and no environment depends on another.
        self._max_steps = -(-self.limit_ticks // timing.shortest_period_ticks)
        self._latency_schedule = np.zeros((n, self._max_steps), np.int64)
        self._period_schedule = np.zeros((n, self._max_steps), np.int64)
        self._steps = np.zeros(n, np.intp)
        self._rows = np.arange(n)
        self._reward_weight = task.reward_per_s * timing.tick_s

    def reset(self, ids: NDArray[np.integer], rngs: Sequence[np.random.Generator]) -> None:
        """Start episodes in environments `ids`; rngs[i] belongs to environment i."""
        self.batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        for i in ids:
            self.qpos[i], self.qvel[i] = self.task.initial(rngs[i])
            draw = self.timing.episode(rngs[i])
            self._latency_schedule[i], self._period_schedule[i] = draw(self._max_steps)
        # Nothing is in flight: the actuators hold the place where the episode starts.
        self.target[ids] = self.qpos[np.ix_(ids, self.task.controlled.qpos)]
        self.elapsed_ticks[ids] = 0
        self._steps[ids] = 0

    @property
    def over(self) -> NDArray[np.bool_]:
        """Which environments have reached the time limit."""
        return self.elapsed_ticks >= self.limit_ticks

    def snapshot(self) -> Snapshot:
        """A measurement of now. Copies: the simulation goes on, the snapshot does not."""
        return Snapshot(self.qpos.copy(), self.qvel.copy(), self._vector_to_go())

    def step(self, displacement: Array) -> Period:
        """One period: the action in flight until the switch, then `displacement` (n, dims).

        Displacements are in units of the action scale. The last period of an episode is cut at
        the time limit. Environments whose episode is over stand still.
        """
        remaining = self.limit_ticks - self.elapsed_ticks
        step = np.minimum(self._steps, self._max_steps - 1)
        switch = np.minimum(self._latency_schedule[self._rows, step], remaining)
        end = np.minimum(self._period_schedule[self._rows, step], remaining)

        rewards = np.zeros((2, self.n))  # before and after the switch
        at_switch = Snapshot(
            np.empty_like(self.qpos), np.empty_like(self.qvel), np.empty_like(self.target)
        )
        now = 0
        for instant in sorted({*switch.tolist(), *end.tolist()}):
            if instant > now:
                self._advance(now, instant, switch, end, rewards)
                now = instant
            switching = switch == instant
            if switching.any():
                self._switch(switching, displacement, at_switch)

        self.elapsed_ticks += end
        self._steps += 1
        if self.batch.warning.any():
            unstable = np.flatnonzero(self.batch.warning.any(axis=(1, 2))).tolist()
            raise RuntimeError(
                f"the physics of {self.task.name} became unstable in environments {unstable}"
            )
        return Period(rewards[0], rewards[1], switch, end, at_switch)

    def _advance(
        self,
        start: int,
        stop: int,
        switch: NDArray[np.int64],
        end: NDArray[np.int64],
        rewards: Array,
    ) -> None:
        """Step the environments that are under way, from one event to the next."""
        ids = None
        if (end <= start).any():
            ids = np.flatnonzero(end > start)
        record = self.batch.rollout(stop - start, record=("qpos", "qvel"), ids=ids)
        reward = self.task.reward(record["qpos"], record["qvel"]).sum(axis=1) * self._reward_weight
        rows = self._rows if ids is None else ids
        rewards[(switch <= start).astype(np.intp)[rows], rows] += reward

    def _switch(
        self, switching: NDArray[np.bool_], displacement: Array, at_switch: Snapshot
    ) -> None:
        """Let the new action pre-empt the old one: its target is relative to where we are now."""
        controlled = self.task.controlled
        rows = slice(None) if switching.all() else np.flatnonzero(switching)
        position = self.qpos[rows][:, controlled.qpos]
        target = position + displacement[rows] * controlled.scale
        self.target[rows] = np.clip(target, controlled.low, controlled.high)
        at_switch.qpos[rows] = self.qpos[rows]
        at_switch.qvel[rows] = self.qvel[rows]
        at_switch.vector_to_go[rows] = self._vector_to_go()[rows]

    def _vector_to_go(self) -> Array:
        controlled = self.task.controlled
        position = self.qpos[:, controlled.qpos]
        return vector_to_go(self.target, position, controlled.scale, controlled.wraps)
