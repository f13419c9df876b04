"""The grasping environments: episodes and rewards over the grasping world."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from midstride.envs.checks import available_cores, check_count, check_render_mode
from midstride.envs.faults import Fault
from midstride.envs.learnable import Array, Hints, Image, Info, Mask
from midstride.envs.single import OneEnv
from midstride.envs.vector import ManyEnvs, Outcome
from midstride.knowledge import Layout, Past, selection_time
from midstride.sim.camera import FAR_M
from midstride.tasks.grasp import actions as columns
from midstride.tasks.grasp import sight
from midstride.tasks.grasp.measures import Measures
from midstride.tasks.grasp.model import TICK_S
from midstride.tasks.grasp.objects import object_set as designs_of
from midstride.tasks.grasp.scenes import Scenes, make_scenes
from midstride.tasks.grasp.scripted import demonstrator
from midstride.tasks.grasp.settings import ConveyorSettings, GraspSettings, settings_from
from midstride.tasks.grasp.world import SCALE, World
from midstride.tasks.pictures import Earlier
from midstride.timing import Schedule

CONTROLLED = ("x", "y", "z", "yaw", "opening")
VALUES = (-0.25, 1.0)  # a success is worth 1, less what its steps cost


class GraspVectorEnv(ManyEnvs):
    """Many arms over bins; success is an object lifted clear of the bin when the episode ends.

    num_envs: how many
    threads: for physics and camera (default: one per available core)
    observe_switch: whether info holds observation_switch (images cost time)
    settings: of the environment, all together, or as keywords (`GraspSettings`)

    An action has seven columns: a displacement (x, y, z, yaw) in [-1, 1], and the commands close,
    open and terminate, on above 0.5. `info` holds, one row per environment: reward_before_switch
    and reward_after_switch, latency_s, period_s, pending, stale and lost (as in `TaskVectorEnv`),
    and the knowledge about what is in flight, used or not: previous_action, pending_actions (if any
    can be), selection_time, vector_to_go. Where an episode ends also success, duration_s,
    policy_duration_s, completion, completion_until_switch, jerk, squared_jerk and path_m
    (docs/grasping.md).
    """

    def __init__(
        self,
        num_envs: int = 1,
        threads: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        observe_switch: bool = False,
        settings: GraspSettings | None = None,
        **options: Any,
    ) -> None:
        s = settings or settings_from(options)
        EzPickle.__init__(
            self, num_envs, threads, autoreset_mode, render_mode, observe_switch, settings=s
        )
        self.settings = s
        self.mode = s.mode
        self.num_envs = check_count("num_envs", num_envs)
        cores = available_cores() if threads is None else check_count("threads", threads)
        self.render_mode = check_render_mode(render_mode)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.observe_switch = observe_switch
        self.timing = s.timing()
        belt = isinstance(s, ConveyorSettings)
        self.scenes = settled_scenes(s.object_set, s.scenes, *s.counts, s.scene_seed, belt)
        self.world = World(
            num_envs,
            designs_of(s.object_set),
            s.counts[1],
            min(cores, self.num_envs),
            self.timing.most_pending,
            belt,
        )
        self.sight = sight.Sight(
            self.world,
            s.image_size,
            s.camera == "following",
            s.depth,
            (s.camera_jitter, s.light_jitter, s.colour_jitter),
        )
        self._schedule = Schedule(self.timing, num_envs, s.max_steps)
        self._finished = np.zeros(num_envs, bool)
        self._fresh = np.ones(num_envs, bool)  # begun, and not captured yet
        self._measures = Measures(num_envs)
        self._is_image = s.observation == "image"
        self._make_spaces()
        self._pictures: Any = None  # of the last capture
        self._earlier = Earlier(num_envs, s.frames - 1 if self._is_image else 0, s.image_size)
        self._past = Past(self.layout, num_envs)
        self._base = np.zeros((num_envs, len(self.layout.base)), np.float32)
        self.hints = Hints(
            value_bounds=lambda gamma_per_s: VALUES,
            commands=columns.COMMANDS,
            auxiliary=partial(sight.ought_to_tell, self.world) if self._is_image else None,
            auxiliary_weights=sight.telling_weights(self.world.slots) if self._is_image else None,
            demonstrator=partial(demonstrator, self),
            rests=s.mode == "blocking",  # a belt goes on
            measure="success",
            longest_episode=s.max_steps,
        )
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": max(1, round(1 / (self.timing.shortest_period_ticks * TICK_S))),
            "autoreset_mode": self.autoreset_mode,
        }

    def _make_spaces(self) -> None:
        seen = tuple(f"object{k}:{part}" for k in range(self.world.slots) for part in sight.OBJECT)
        base = sight.HAND if self._is_image else (*sight.HAND, *sight.WHERE, *seen)
        bound = np.full(len(base), 1 if self._is_image else np.inf)
        low = 0 * bound if self._is_image else -bound
        speeds = sight.VELOCITY if self.settings.hand_velocity else ()
        speeds = speeds if self.world.belt is None else (*speeds, *sight.BELT)
        unbounded = np.full(len(speeds), np.inf)
        base, low, bound = (
            (*base, *speeds),
            np.append(low, -unbounded),
            np.append(bound, unbounded),
        )
        units = {"vector_to_go": [*SCALE.tolist(), 1.0], "previous_action": "as the action is"}
        self.layout = Layout(
            base,
            columns.NAMES,
            CONTROLLED,
            self.settings.knowledge,
            stack_observations=self.settings.frames - 1,
            pending_slots=self.timing.pending_slots,
            units=units,
        )
        low, high = self.layout.bounds(low, bound, columns.LOW, columns.HIGH)
        state = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        self.single_observation_space: spaces.Space[Any] = state
        if self._is_image:
            size = self.settings.image_size
            parts: dict[str, spaces.Space[Any]] = {
                "image": spaces.Box(0, 255, (size, size, 3 * self.settings.frames), np.uint8),
                "state": state,
            }
            if self.settings.depth:
                parts["depth"] = spaces.Box(0, FAR_M, (size, size), np.float32)
            self.single_observation_space = spaces.Dict(parts)
        self.single_action_space = spaces.Box(
            columns.LOW.astype(np.float32), columns.HIGH.astype(np.float32)
        )
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def camera_s(self) -> float:
        return self.sight.camera_s

    @property
    def steps_taken(self) -> NDArray[np.int64]:
        """Steps of the episodes under way."""
        return self._schedule.steps.copy()

    def next_latency_ticks(self) -> NDArray[np.int64]:
        """The latencies of the coming step: for scripted policies, which know everything."""
        return self._schedule.coming()[0]

    def render(self) -> tuple[Image, ...] | None:
        """A picture of each arm."""
        return None if self.render_mode is None else self.sight.from_afar()

    def close_extras(self, **kwargs: Any) -> None:
        if hasattr(self, "world"):  # or it was never made
            self.world.close()

    def _live(self, actions: NDArray[Any], active: Mask) -> Outcome:
        actions = self._checked(actions)
        self._past.push(self._base, actions)
        if self._is_image:
            self._earlier.push(self._pictures[0])
        latency, period, lost = self._schedule.coming()
        flight = self.world.flight
        stale = flight.stale.copy()
        at_switch: list[tuple[Mask, Any]] = []

        def observe(which: Mask) -> None:
            newest = which & flight.newest_in_force
            if self.observe_switch and newest.any():
                at_switch.append((newest, self._observe(np.flatnonzero(newest))))

        decision = self.world.decide(
            actions, latency, None if self.mode != "concurrent" else period, active, observe, lost
        )
        self._check_physics()
        self._schedule.steps += active
        pose = self.world.pose()
        self._measures.add(decision, pose, active)

        terminate = (actions[:, columns.TERMINATE] > 0.5) & ~lost
        lifted = self.world.lifted().any(axis=1)
        last = terminate | (self._schedule.steps >= self.settings.max_steps)
        self._finished = ~active | last | (lifted & self.settings.end_on_success)
        success = lifted & self._finished & active
        switched = flight.newest_in_force
        share = np.where(switched, latency / np.maximum(decision.period_ticks, 1), 1.0)
        penalty = np.where(active, self.settings.step_penalty, 0.0)
        paid = success.astype(float)
        before = np.where(terminate | ~switched, paid, 0.0) - penalty * share
        after = np.where(terminate | ~switched, 0.0, paid) - penalty * (1 - share)
        info: Info = {
            "reward_before_switch": before,
            "reward_after_switch": after,
            "latency_s": latency * TICK_S,
            "period_s": decision.period_ticks * TICK_S,
            "pending": flight.count_pending(),
            "stale": flight.stale - stale,
            "lost": lost,
        }
        if self.observe_switch:
            info["observation_switch"] = self._gathered(at_switch)
        # A success is paid and final. So is a failure that the policy chose by terminating; at the
        # step limit a failed episode is only cut off.
        terminated = success | (terminate & active)
        at_end = self._measures.report(success, pose)
        return Outcome(before + after, terminated, info, at_end)

    def _checked(self, actions: NDArray[Any]) -> Array:
        actions = np.asarray(actions, float)
        if actions.shape != (self.num_envs, columns.SIZE) or not np.isfinite(actions).all():
            raise ValueError(
                f"actions must be {self.num_envs} x {columns.SIZE} numbers "
                f"({', '.join(columns.NAMES)}), got {actions!r}"
            )
        return np.clip(actions, columns.LOW, columns.HIGH)

    def _gathered(self, parts: list[tuple[Mask, Any]]) -> Any:
        """Observations of all environments from those of some at a time; 0 where there is none."""
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            whole: Any = {name: np.zeros(part.shape, part.dtype) for name, part in space.items()}
            for which, rows in parts:
                for name, part in whole.items():
                    part[which] = rows[name]
            return whole
        whole = np.zeros(space.shape, space.dtype)
        for which, rows in parts:
            whole[which] = rows
        return whole

    def _knowledge(self) -> Info:
        flight, slots = self.world.flight, self.layout.pending_slots
        known = {
            "previous_action": flight.action.astype(np.float32),
            "selection_time": selection_time(
                flight.latency * TICK_S, self.timing.selection_scale_s
            ),
            "vector_to_go": self.world.vector_to_go(),
        }
        if slots:
            known["pending_actions"] = flight.pending(slots)[1].astype(np.float32)
        return known

    @property
    def _over(self) -> Mask:
        return self._finished

    def _begin(self, ids: NDArray[np.integer]) -> None:
        assert self._rngs is not None
        if self.world.belt is not None and isinstance(self.settings, ConveyorSettings):
            for i in ids:
                self.world.belt.draw(int(i), self._rngs[i], *self.settings.belt)
        drawn = np.array([self._rngs[i].integers(len(self.scenes), size=2) for i in ids])
        self.scenes.start(self.world, ids, drawn[:, 0], hands=drawn[:, 1])
        for i in ids:
            self._schedule.begin(int(i), self._rngs[i])
            self.sight.paint(int(i), self._rngs[i])
        self._finished[ids] = False
        self._fresh[ids] = True
        self._measures.reset(ids)

    def _capture(self, ids: NDArray[np.integer] | None = None) -> Any:
        everyone = np.arange(self.num_envs)
        self._base = self._seen(everyone)
        if self._fresh.any():
            self._past.reset(np.flatnonzero(self._fresh), self._base[self._fresh])
        if not self._is_image:
            self._fresh[:] = False
            return self._state(everyone, self._base)
        image, depth = self.sight.photograph(everyone if ids is None else ids)
        if ids is not None:  # what was handed out before stays as it was
            (old, old_depth), new, new_depth = self._pictures, image, depth
            image = old.copy()
            image[ids] = new
            if old_depth is not None:
                depth = old_depth.copy()
                depth[ids] = new_depth
        self._pictures = image, depth
        if self._fresh.any():
            self._earlier.reset(self._fresh, image)
        self._fresh[:] = False
        state = self._state(everyone, self._base)
        return self._dict(self._earlier.behind(image, everyone), depth, state)

    def _observe(self, ids: NDArray[np.integer]) -> Any:
        """What environments `ids` observe now."""
        state = self._state(ids, self._seen(ids))
        if not self._is_image:
            return state
        image, depth = self.sight.photograph(ids)
        return self._dict(self._earlier.behind(image, ids), depth, state)

    def _dict(self, image: Image, depth: Any, state: NDArray[np.float32]) -> dict[str, Any]:
        parts = {"image": image, "state": state}
        return parts if depth is None else {**parts, "depth": depth}

    def _seen(self, ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """What environments `ids` observe beside pictures and knowledge."""
        world, pose = self.world, self.world.pose()[ids]
        parts = [sight.hand_of(world, ids, pose)]
        if not self._is_image:
            parts.append(sight.places_of(world, ids, pose))
        if self.settings.hand_velocity:
            parts.append(world.hand_velocity()[ids] / SCALE)
        if world.belt is not None:
            parts.append(sight.belt_of(world, ids))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _state(self, ids: NDArray[np.integer], base: NDArray[np.float32]) -> Any:
        world, pending, past = self.world, None, Past(self.layout, len(ids))
        past.observations[:] = self._past.observations[ids]
        if "pending_actions" in self.layout.blocks:
            pending = world.flight.pending(self.layout.pending_slots)[1][ids]
        return self.layout.assemble(
            base,
            selection_time(world.flight.latency[ids] * TICK_S, self.timing.selection_scale_s),
            world.vector_to_go()[ids],
            past,
            previous_action=world.flight.action[ids],
            pending_actions=pending,
        )

    def _check_physics(self) -> None:
        warning = self.world.batch.warning
        if warning.any():
            unstable = np.flatnonzero(warning.any(axis=(1, 2))).tolist()
            raise Fault(f"the physics of grasping became unstable in {unstable}")


class GraspEnv(OneEnv):
    """One grasping environment. Takes the settings of `GraspVectorEnv`."""

    def __init__(
        self,
        render_mode: str | None = None,
        observe_switch: bool = False,
        settings: GraspSettings | None = None,
        **options: Any,
    ) -> None:
        for name in ("num_envs", "threads", "autoreset_mode"):
            if name in options:
                raise ValueError(f"{name} is for many environments: use gymnasium.make_vec")
        s = settings or settings_from(options)
        EzPickle.__init__(self, render_mode, observe_switch, s)
        off = AutoresetMode.DISABLED
        self._unpack(GraspVectorEnv(1, 1, off, render_mode, observe_switch, s))


@lru_cache(maxsize=4)
def settled_scenes(
    object_set: str, count: int, fewest: int, most: int, seed: int, belt: bool = False
) -> Scenes:
    return make_scenes(designs_of(object_set), count, fewest, most, seed, available_cores(), belt)
