"""The Gymnasium face of the tasks: a native vector environment, and a single one over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from midstride.envs.vector import (
    Info,
    ManyEnvs,
    OneEnv,
    available_cores,
    check_count,
    check_render_mode,
)
from midstride.knowledge import Layout, Past, check_features, one_hot, selection_time
from midstride.sim.batch import Simulation, Snapshot
from midstride.sim.camera import Camera, Image, draw_disc
from midstride.tasks import Task, make_task
from midstride.timing import LatencyModel, Timing, as_latency

Actions = int | Literal["continuous"]

DISCRETE_ACTIONS = range(3, 9)
_MARKER_RGB = (235, 70, 60)


class TaskVectorEnv(ManyEnvs):
    """Many concurrent environments of one task, stepped together.

    task: pointmass, cartpole or pendulum
    num_envs: how many
    latency: seconds from an observation to the switch to the action chosen on it, or a latency
        model (PerEpisode, PerStep, Sampled, Trace); 0, the default, is blocking control
    execution: seconds that a new action has run when the next observation is taken; or
    period: seconds from one observation to the next (default: the task's own period)
    knowledge: any of previous_action, selection_time, vector_to_go
    actions: how many discrete displacements (3 to 8), or 'continuous' for a Box in [-1, 1]
    stack_observations, stack_actions: how many previous ones (0 to 4) are observed too
    tick: physics timestep in seconds; every other time is a whole number of ticks
    threads: for the physics (default: one per available core)
    autoreset_mode: when a finished environment starts anew; with SAME_STEP, the default, the
        last observation of the episode is in info["final_obs"]

    `info` holds, one row per environment: reward_before_switch and reward_after_switch (their
    sum is the reward), latency_s, period_s, and observation_at_switch: what would be observed at
    the switch, with the new action in flight. A copied or pickled environment starts afresh.
    """

    def __init__(
        self,
        task: str,
        num_envs: int = 1,
        latency: float | LatencyModel = 0.0,
        execution: float | None = None,
        period: float | None = None,
        knowledge: Iterable[str] = (),
        actions: Actions = 5,
        stack_observations: int = 0,
        stack_actions: int = 0,
        tick: float = 0.005,
        threads: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
    ) -> None:
        check_count("num_envs", num_envs)
        check_count("threads", 1 if threads is None else threads)
        knowledge = check_features(knowledge)
        EzPickle.__init__(
            self, task, num_envs, latency, execution, period, knowledge, actions,
            stack_observations, stack_actions, tick, threads, autoreset_mode, render_mode,
        )  # fmt: skip
        self.num_envs = num_envs
        self.render_mode = check_render_mode(render_mode)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.task = make_task(task, tick)
        self.timing = make_timing(self.task, latency, execution, period, tick)
        self._displacements, action_names, action_low = _action_table(self.task, actions)
        self.layout = Layout(
            base=self.task.columns,
            action=action_names,
            controlled=self.task.controlled.names,
            features=knowledge,
            stack_observations=stack_observations,
            stack_actions=stack_actions,
        )
        self.simulation = Simulation(
            self.task, self.timing, num_envs, threads or min(available_cores(), num_envs)
        )
        self._past = Past(self.layout, num_envs)
        self._base = np.zeros((num_envs, len(self.task.columns)), np.float32)
        self._latency_s: NDArray[np.floating] = np.zeros(num_envs)

        low, high = self.layout.bounds(
            self.task.observation_low,
            self.task.observation_high,
            action_low,
            np.ones(len(action_names)),
        )
        self.single_observation_space = spaces.Box(
            low.astype(np.float32), high.astype(np.float32), dtype=np.float32
        )
        self.single_action_space = (
            spaces.Discrete(len(action_names))
            if self._displacements is not None
            else spaces.Box(-1, 1, (len(action_names),), np.float32)
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": round(1 / (self.timing.shortest_period_ticks * tick)),
            "autoreset_mode": self.autoreset_mode,
        }
        self._camera = Camera(self.task.viewpoint)

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of every column of an observation."""
        return self.layout.columns

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        """From capture to next capture: the action in flight, then `actions` from the switch on."""
        waiting = self._waiting()
        displacement, encoded = self._decode(np.asarray(actions))
        period = self.simulation.step(displacement)
        self._past.push(self._base, encoded)
        self._latency_s = period.latency_ticks * self.timing.tick_s
        info: Info = {
            "reward_before_switch": period.reward_before_switch,
            "reward_after_switch": period.reward_after_switch,
            "latency_s": self._latency_s.copy(),
            "period_s": period.period_ticks * self.timing.tick_s,
            "observation_at_switch": self._observe(period.at_switch),
        }
        reward = period.reward_before_switch + period.reward_after_switch
        observation, truncated = self._conclude(info, {}, waiting)
        return observation, reward, np.zeros(self.num_envs, bool), truncated, info

    def render(self) -> tuple[Image, ...] | None:
        """A picture of each environment; the red disc marks the target of the action in flight."""
        if self.render_mode is None:
            return None
        images = self._camera.of_batch(self.simulation.batch, np.arange(self.num_envs))
        for image, qpos, target in zip(
            images, self.simulation.qpos, self.simulation.target, strict=True
        ):
            column, row = self._camera.project(self.task.marker(qpos, target))
            draw_disc(image, column, row, radius=0.02 * self._camera.height, rgb=_MARKER_RGB)
        return tuple(images)

    def _decode(self, actions: NDArray[Any]) -> tuple[NDArray[np.floating], NDArray[np.float32]]:
        """Actions as displacements in units of the action scale, and as columns."""
        if self._displacements is not None:
            count = len(self._displacements)
            if actions.shape != (self.num_envs,) or not np.issubdtype(actions.dtype, np.integer):
                raise ValueError(f"actions must be {self.num_envs} whole numbers, got {actions!r}")
            if actions.min() < 0 or actions.max() >= count:
                raise ValueError(f"actions must be from 0 to {count - 1}, got {actions}")
            return self._displacements[actions], one_hot(actions, count)
        dims = len(self.task.controlled.names)
        if actions.shape != (self.num_envs, dims) or not np.isfinite(actions).all():
            raise ValueError(f"actions must be {self.num_envs} x {dims} numbers, got {actions!r}")
        clipped = np.clip(actions, -1.0, 1.0)
        return clipped.astype(float), clipped.astype(np.float32)

    @property
    def _over(self) -> NDArray[np.bool_]:
        return self.simulation.over

    def _begin(self, ids: NDArray[np.integer]) -> None:
        assert self._rngs is not None
        self.simulation.reset(ids, self._rngs)
        self._latency_s[ids] = 0
        base = self.task.observe(self.simulation.qpos[ids], self.simulation.qvel[ids])
        self._past.reset(ids, base)

    def _capture(self, ids: NDArray[np.integer] | None = None) -> NDArray[np.float32]:
        """Observe now; what the task itself observes becomes a past observation at the switch."""
        observation = self._observe(self.simulation.snapshot())
        self._base = observation[:, self.layout.slices["base"]].copy()
        return observation

    def _observe(self, now: Snapshot) -> NDArray[np.float32]:
        return self.layout.assemble(
            self.task.observe(now.qpos, now.qvel),
            selection_time(self._latency_s, self.timing.latency_high_s),
            now.vector_to_go,
            self._past,
        )


class TaskEnv(OneEnv):
    """One concurrent environment: the vector environment of one, unpacked.

    Takes the options of `TaskVectorEnv`; with the same seed it gives the same numbers.
    """

    def __init__(
        self,
        task: str,
        latency: float | LatencyModel = 0.0,
        execution: float | None = None,
        period: float | None = None,
        knowledge: Iterable[str] = (),
        actions: Actions = 5,
        stack_observations: int = 0,
        stack_actions: int = 0,
        tick: float = 0.005,
        render_mode: str | None = None,
    ) -> None:
        knowledge = check_features(knowledge)
        EzPickle.__init__(
            self, task, latency, execution, period, knowledge, actions, stack_observations,
            stack_actions, tick, render_mode,
        )  # fmt: skip
        vector = TaskVectorEnv(
            task,
            num_envs=1,
            latency=latency,
            execution=execution,
            period=period,
            knowledge=knowledge,
            actions=actions,
            stack_observations=stack_observations,
            stack_actions=stack_actions,
            tick=tick,
            threads=1,
            autoreset_mode=AutoresetMode.DISABLED,
            render_mode=render_mode,
        )
        self._unpack(vector)
        self.columns = vector.columns  # the name of every column of the observation


def make_timing(
    task: Task,
    latency: float | LatencyModel,
    execution: float | None,
    period: float | None,
    tick: float,
) -> Timing:
    """The timing of a task; with neither execution nor period, at the task's own period."""
    if execution is None and period is None:
        period = task.period_s
    return Timing(as_latency(latency), period_s=period, execution_s=execution, tick_s=tick)


def _action_table(
    task: Task, actions: Actions
) -> tuple[NDArray[np.floating] | None, tuple[str, ...], NDArray[np.floating]]:
    """Displacements by discrete action (None: continuous), column names, lowest column values."""
    if actions == "continuous":
        names = task.controlled.names
        return None, names, np.full(len(names), -1.0)
    if isinstance(actions, bool) or not isinstance(actions, (int, np.integer)):
        raise ValueError(f"actions must be a whole number or 'continuous', got {actions!r}")
    if actions not in DISCRETE_ACTIONS:
        raise ValueError(
            f"actions must be from {DISCRETE_ACTIONS[0]} to {DISCRETE_ACTIONS[-1]}, or "
            f"'continuous', got {actions}"
        )
    table = task.displacements(int(actions))
    return table, tuple(str(i) for i in range(len(table))), np.zeros(len(table))
