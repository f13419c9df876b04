"""Many concurrent environments of one task: their Gymnasium face."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from midstride.envs.checks import available_cores, check_count, check_render_mode
from midstride.envs.learnable import Array, Hints, Image, Mask
from midstride.envs.vector import ManyEnvs, Outcome
from midstride.flight import Flight, Ticks
from midstride.knowledge import Layout, Past, one_hot, selection_time
from midstride.seconds import seconds_of, to_ticks
from midstride.sim.camera import Camera, draw_disc
from midstride.tasks.pictures import Pictures
from midstride.tasks.plant import Snapshot, TaskPlant
from midstride.tasks.settings import TaskSettings, make_task
from midstride.timing import Schedule, check_shorter

MARKER_RGB = (235, 70, 60)


class TaskVectorEnv(ManyEnvs):
    """Many concurrent environments of one task, stepped together.

    settings: of the environment, or the name of a task, followed by its settings as keywords
    num_envs: how many
    threads: for the physics (default: one per available core)
    autoreset_mode: when a finished environment starts anew; with SAME_STEP, the default, the
        last observation of the episode is in info["final_obs"]
    observe_switch: whether `info` holds observation_switch: what would be observed at the switch,
        with the new action in flight; at the next observation, where the switch comes later

    `info` holds, one row per environment: reward_before_switch and reward_after_switch (their
    sum is the reward; all of it is before a switch that comes later than the next observation),
    latency_s (of the decision of this step), period_s (to the next observation), pending (how many
    decisions are, at the next observation), stale (how many were dropped in this step), lost
    (whether the decision of this step never arrives). Where an episode that ends by itself ends,
    also what is measured of it: success, duration_s, jerk (of the controlled place, m/s^3, from
    places every 20 ms), and what the task says. A copied or pickled environment starts afresh.
    """

    def __init__(
        self,
        task: str | TaskSettings,
        num_envs: int = 1,
        threads: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        observe_switch: bool = False,
        **settings: Any,
    ) -> None:
        if isinstance(task, str):
            task = TaskSettings.from_dict({"task": task, **settings})
        EzPickle.__init__(
            self, task, num_envs, threads, autoreset_mode, render_mode, observe_switch
        )
        self.settings = task
        self.num_envs = check_count("num_envs", num_envs)
        threads = min(available_cores(), num_envs) if threads is None else threads
        self.render_mode = check_render_mode(render_mode)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self._sees = task.observation == "image"
        if observe_switch and self._sees:
            raise ValueError("no picture is taken at the switch: learn with target full_period")
        self.observe_switch = observe_switch
        self._within_ticks: tuple[int, ...] = ()  # after a capture, where more is observed
        self.task = make_task(task.task, seconds_of(task.tick))
        self.timing = timing = task.timing()
        check_shorter(timing, self.task.time_limit_s)
        self._limit_ticks = to_ticks(self.task.time_limit_s, timing.tick_s, "time limit")
        longest = -(-self._limit_ticks // timing.shortest_period_ticks)
        self._schedule = Schedule(timing, num_envs, longest)
        self._make_spaces()
        # What flies: displacements in units of the action scale, then the action's columns.
        dims = len(self.task.controlled.names)
        size = dims + len(self.layout.action)
        holds = timing.mode == "hold"
        self.flight = Flight(num_envs, (size,), timing.most_pending, holds=holds)
        shortest, longest_ticks = timing.latency_bounds_ticks
        always_s = timing.latency_high_s if shortest == longest_ticks > 0 else None
        self.plant = TaskPlant(self.task, self.flight, check_count("threads", threads), always_s)
        self._past = Past(self.layout, num_envs)
        self._base = np.zeros((num_envs, len(self.layout.base)), np.float32)
        self._pictures: Pictures | None = None
        if self._sees:
            size, frames = task.image_size, task.frames
            self._pictures = Pictures(self.task.viewpoint, num_envs, size, frames)
        self._latency_s: Array = np.zeros(num_envs)
        per_s, once = self.task.reward_per_s, self.task.finish is not None
        most = per_s * (timing.tick_s if once else timing.longest_period_s)  # of a period
        count = len(self.task.columns)
        self.hints = Hints(
            reward_scale=1 / most,
            value_bounds=lambda gamma_per_s: (
                0.0,
                most if once else per_s / -math.log(gamma_per_s),
            ),
            measure="success" if once else None,
            longest_episode=longest,
            observe_within=None if self._sees else self.observe_within,
            auxiliary=self._ought_to_tell if self._sees else None,
            auxiliary_weights=np.full(count, 1 / count, np.float32) if self._sees else None,
        )
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": round(1 / (timing.shortest_period_ticks * timing.tick_s)),
            "autoreset_mode": self.autoreset_mode,
        }
        self._camera = Camera(self.task.viewpoint)

    def _make_spaces(self) -> None:
        task, settings = self.task, self.settings
        self._displacements: Array | None = None
        names, low = task.controlled.names, np.full(len(task.controlled.names), -1.0)
        if settings.actions != "continuous":
            self._displacements = task.displacements(settings.actions)
            names = tuple(str(i) for i in range(len(self._displacements)))
            low = np.zeros(len(names))
        self.layout = Layout(
            base=task.controlled.names if self._sees else task.columns,
            action=names,
            controlled=task.controlled.names,
            features=settings.knowledge,
            stack_observations=settings.stack_observations,
            stack_actions=settings.stack_actions,
            pending_slots=self.timing.pending_slots,
            units={
                "vector_to_go": task.controlled.scale.tolist(),
                "previous_action": "one-hot" if self._displacements is not None else [-1, 1],
            },
        )
        places = np.full(len(task.controlled.names), np.inf)
        least, most = (
            (-places, places) if self._sees else (task.observation_low, task.observation_high)
        )
        lowest, highest = self.layout.bounds(least, most, low, np.ones(len(names)))
        state = spaces.Box(lowest.astype(np.float32), highest.astype(np.float32), dtype=np.float32)
        self.single_observation_space: spaces.Space[Any] = state
        if self._sees:
            size, frames = settings.image_size, settings.frames
            image = spaces.Box(0, 255, (size, size, 3 * frames), np.uint8)
            self.single_observation_space = spaces.Dict({"image": image, "state": state})
        self.single_action_space = (
            spaces.Box(-1, 1, (len(names),), np.float32)
            if self._displacements is None
            else spaces.Discrete(len(names))
        )
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def render(self) -> tuple[Image, ...] | None:
        """A picture of each environment; the red disc marks the target of the action in force."""
        if self.render_mode is None:
            return None
        images = self._camera.of_batch(self.plant.batch, np.arange(self.num_envs))
        for image, qpos, target in zip(images, self.plant.qpos, self.plant.target, strict=True):
            column, row = self._camera.project(self.task.marker(qpos, target))
            draw_disc(image, column, row, radius=0.02 * self._camera.height, rgb=MARKER_RGB)
        return tuple(images)

    def next_latency_ticks(self) -> NDArray[np.int64]:
        """The latencies of the coming step: for scripted policies, which know everything."""
        return self._schedule.coming()[0]

    def close_extras(self, **kwargs: Any) -> None:
        if hasattr(self, "plant"):  # or it was never made
            self.plant.close()

    def _live(self, actions: NDArray[Any], active: Mask) -> Outcome:
        decision = self._decode(actions)
        latency, interval, lost = self._schedule.coming()
        period = np.minimum(interval, self._limit_ticks - self.flight.now)  # the last may be cut
        stale, all_arrive = self.flight.stale.copy(), self.timing.arrives_in_time
        self.plant.rewards = np.zeros_like(self.plant.rewards)
        self.plant.at_switch = self.plant.snapshot() if self.observe_switch else None
        self.flight.capture(decision, latency, active, None if all_arrive else lost)
        within = self._until_next(period, active)
        self._schedule.steps += 1
        self._past.push(self._base, decision[:, -len(self.layout.action) :])
        if self._pictures is not None:
            self._pictures.go_on()
        taken = measured = np.minimum(latency, period)
        if not all_arrive:
            in_time = latency <= interval
            taken = np.where(in_time, taken, latency)
            measured = np.where(in_time & ~lost, taken, self.flight.latency)
        self._latency_s = measured * self.timing.tick_s
        self.plant.check()
        info = {
            "reward_before_switch": self.plant.rewards[0],
            "reward_after_switch": self.plant.rewards[1],
            "latency_s": taken * self.timing.tick_s,
            "period_s": period * self.timing.tick_s,
            "pending": self.flight.count_pending(),
            "stale": self.flight.stale - stale,
            "lost": lost,
            **within,
        }
        if self.plant.at_switch is not None:
            late = ~self.flight.newest_in_force
            if late.any():
                self.plant.record(self.plant.at_switch, late)
            info["observation_switch"] = self._observe(self.plant.at_switch)
        reward = self.plant.rewards[0] + self.plant.rewards[1]
        ending = self.plant.ending
        if ending is None:
            return Outcome(reward, np.zeros(self.num_envs, bool), info)
        over = self._over
        at_end = ending.report(over & active, self.flight.now) if over.any() else {}
        return Outcome(reward, ending.over.copy(), info, at_end)

    def observe_within(self, ticks: tuple[int, ...]) -> None:
        """From now on `info` holds what is observed and earned so many ticks after each capture.

        observation_within (n, instants x columns): the task's own columns, then vector-to-go, if
        the agent knows it; reward_within (n, instants): since the capture. After the end of an
        episode they are as at its end.
        """
        self._within_ticks = tuple(sorted(ticks))

    def _until_next(self, period: Ticks, active: Mask) -> dict[str, Array]:
        """From this capture to the next; entries of `info` from instants on the way."""
        seen, earned, gone = [], [], np.zeros_like(period)
        for ticks in self._within_ticks:
            until = np.minimum(ticks, period)
            self.flight.period(self.plant, until - gone, active)
            now, gone = self.plant.snapshot(), until
            seen.append(self.task.observe(now.qpos, now.qvel))
            if "vector_to_go" in self.layout.features:
                seen.append(now.vector_to_go)
            earned.append(self.plant.rewards.sum(axis=0))
        self.flight.period(self.plant, period - gone, active)
        if not seen:
            return {}
        observed = np.concatenate(seen, axis=1).astype(np.float32)
        return {"observation_within": observed, "reward_within": np.stack(earned, axis=1)}

    def _decode(self, actions: NDArray[Any]) -> Array:
        """Actions as displacements in units of the action scale, then as columns."""
        n, dims = self.num_envs, len(self.task.controlled.names)
        if self._displacements is None:
            if actions.shape != (n, dims) or not np.isfinite(actions).all():
                raise ValueError(f"actions must be {n} x {dims} numbers, got {actions!r}")
            clipped = np.clip(actions, -1.0, 1.0).astype(float)
            return np.concatenate([clipped, clipped], axis=1)
        count = len(self._displacements)
        if actions.shape != (n,) or not np.issubdtype(actions.dtype, np.integer):
            raise ValueError(f"actions must be {n} whole numbers, got {actions!r}")
        if actions.min() < 0 or actions.max() >= count:
            raise ValueError(f"actions must be from 0 to {count - 1}, got {actions}")
        return np.concatenate([self._displacements[actions], one_hot(actions, count)], axis=1)

    @property
    def _over(self) -> Mask:
        late = self.flight.now >= self._limit_ticks
        return late if self.plant.ending is None else late | self.plant.ending.over

    def _begin(self, ids: NDArray[np.integer]) -> None:
        assert self._rngs is not None
        self.flight.reset(ids)
        self.plant.begin(ids, self._rngs)
        for i in ids:
            self._schedule.begin(i, self._rngs[i])
        self._latency_s[ids] = 0
        self._past.reset(ids, self._seen(self.plant.qpos[ids], self.plant.qvel[ids]))
        if self._pictures is not None:
            self._pictures.begin(ids)

    def _capture(self, ids: NDArray[np.integer] | None = None) -> Any:
        state = self._observe(self.plant.snapshot())
        self._base = state[:, self.layout.slices["base"]].copy()
        if self._pictures is None:
            return state
        return {"image": self._pictures.capture(self.plant.batch, ids), "state": state}

    def _seen(self, qpos: Array, qvel: Array) -> Array:
        """The columns of the state that are not knowledge."""
        if self._sees:
            return qpos[:, self.task.controlled.qpos]
        return self.task.observe(qpos, qvel)

    def _ought_to_tell(self) -> NDArray[np.float32]:
        """What pictures ought to tell: the state."""
        return self.task.observe(self.plant.qpos, self.plant.qvel).astype(np.float32)

    def _observe(self, now: Snapshot) -> Any:
        columns, pending = slice(-len(self.layout.action), None), None
        if "pending_actions" in self.layout.blocks:
            pending = self.flight.pending(self.layout.pending_slots)[1][..., columns]
        return self.layout.assemble(
            self._seen(now.qpos, now.qvel),
            selection_time(self._latency_s, self.timing.selection_scale_s),
            now.vector_to_go,
            self._past,
            previous_action=self.flight.action[:, columns],
            pending_actions=pending,
        )
