"""The grasping environments: episodes, rewards, pictures and measures over the grasping world."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from midstride.envs.vector import Info, ManyEnvs, Mask, OneEnv, available_cores, check_count
from midstride.envs.vector import check_render_mode as _check_render_mode
from midstride.knowledge import Layout, Past, check_features, selection_time
from midstride.sim.camera import FAR_M, LIGHT, Camera, Image, Look
from midstride.tasks.grasp import actions as action_columns
from midstride.tasks.grasp import kinematics
from midstride.tasks.grasp.model import (
    FOLLOWED_HEIGHT_M,
    FOLLOWING_VIEWPOINT,
    TICK_S,
    VIEWPOINT,
    WIDE_VIEWPOINT,
)
from midstride.tasks.grasp.objects import object_set as designs_of
from midstride.tasks.grasp.scenes import Scenes, make_scenes
from midstride.tasks.grasp.scripted import across
from midstride.tasks.grasp.world import HIGH, LOW, Decision, World
from midstride.timing import LatencyModel, Timing, as_latency

Array = NDArray[np.floating]

PERIOD_S = 0.3
MAX_STEPS = 20
CONTROLLED = ("x", "y", "z", "yaw", "opening")
_HAND = ("opening", "height")
_WHERE = ("x", "y", "yaw")  # of the hand, which an image shows
_OBJECT = ("there", "dx", "dy", "dz", "across_cos", "across_sin", "width")
_OFFSET_M = 0.1  # unit of dx, dy, dz
_WIDTH_M = 0.03  # unit of a width
_MOST_CAMERA_JITTER_M = 0.2  # beyond, it would look from under the table


class GraspVectorEnv(ManyEnvs):
    """Many arms over bins; success is an object lifted clear of the bin when the episode ends.

    num_envs: how many
    mode: 'concurrent' (the arm moves on while the policy thinks, and a new action pre-empts the
        old) or 'blocking' (an action runs to completion and rest; thinking time passes at rest)
    latency: seconds from an observation to the switch to the action chosen on it, or a latency
        model (PerEpisode, PerStep, Sampled, Trace)
    period: concurrent: seconds from one observation to the next (default 0.3); or
    execution: concurrent: seconds that a new action has run when the next observation is taken
    knowledge: any of previous_action, selection_time, vector_to_go
    observation: 'image' (a Dict of image and state) or 'state' (a flat Box with the places of all
        objects, nearest first)
    objects: how many are in the bin, 1 to 5, or (fewest, most)
    object_set: 'train', 'held_out' or 'household'
    image_size: of the square image, in pixels
    camera: 'fixed', or 'following': in the same place, turned to what is under the hand, and closer
    depth: whether the Dict has a depth image too
    camera_jitter, light_jitter, colour_jitter: how much the camera's place (metres), the light's
        direction and every colour (shares) differ from episode to episode
    step_penalty: taken off the reward at every step
    max_steps: of an episode
    end_on_success: whether an episode ends by itself when an object is lifted, as seen at an
        observation; otherwise the terminate command ends it
    observe_switch: whether info holds observation_at_switch (images cost time)
    scenes: settled scenes that episodes start from; they depend on scene_seed alone
    threads: for physics and camera (default: one per available core)

    An action has seven columns: a displacement (x, y, z, yaw) in [-1, 1], and the commands close,
    open and terminate, on above 0.5. `info` holds, one row per environment: reward_before_switch
    and reward_after_switch, latency_s, period_s, and the knowledge about the action in flight,
    used or not: previous_action, selection_time, vector_to_go. Where an episode ends also success,
    duration_s, policy_duration_s, completion, completion_until_switch and jerk (docs/grasping.md).
    """

    def __init__(
        self,
        num_envs: int = 1,
        mode: Literal["concurrent", "blocking"] = "concurrent",
        latency: float | LatencyModel = 0.1,
        period: float | None = None,
        execution: float | None = None,
        knowledge: Iterable[str] = (),
        observation: Literal["image", "state"] = "image",
        objects: int | tuple[int, int] = 3,
        object_set: str = "train",
        image_size: int = 64,
        camera: Literal["fixed", "following"] = "fixed",
        depth: bool = False,
        camera_jitter: float = 0.0,
        light_jitter: float = 0.0,
        colour_jitter: float = 0.0,
        step_penalty: float = 0.0,
        max_steps: int = MAX_STEPS,
        end_on_success: bool = False,
        observe_switch: bool = False,
        scenes: int = 256,
        scene_seed: int = 0,
        threads: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
    ) -> None:
        knowledge = check_features(knowledge)
        EzPickle.__init__(
            self, num_envs, mode, latency, period, execution, knowledge, observation, objects,
            object_set, image_size, camera, depth, camera_jitter, light_jitter, colour_jitter,
            step_penalty, max_steps, end_on_success, observe_switch, scenes, scene_seed, threads,
            autoreset_mode, render_mode,
        )  # fmt: skip
        check_count("num_envs", num_envs)
        check_count("max_steps", max_steps)
        check_count("image_size", image_size)
        check_count("scenes", scenes)
        cores = available_cores() if threads is None else check_count("threads", threads)
        _check_choice("mode", mode, ("concurrent", "blocking"))
        _check_choice("observation", observation, ("image", "state"))
        _check_choice("camera", camera, ("fixed", "following"))
        _check_between("camera_jitter", camera_jitter, _MOST_CAMERA_JITTER_M)
        _check_between("light_jitter", light_jitter, 1)
        _check_between("colour_jitter", colour_jitter, 1)
        _check_between("step_penalty", step_penalty, 1)
        if isinstance(scene_seed, bool) or not isinstance(scene_seed, int) or scene_seed < 0:
            raise ValueError(f"scene_seed must be a whole number of at least 0, got {scene_seed!r}")
        if depth and observation == "state":
            raise ValueError("depth is an image: it needs observation 'image'")
        fewest, most = _counts(objects)
        self.timing = _timing(mode, latency, period, execution)
        self.num_envs = num_envs
        self.mode = mode
        self.render_mode = _check_render_mode(render_mode)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.step_penalty, self.max_steps = step_penalty, max_steps
        self.end_on_success, self.observe_switch = end_on_success, observe_switch
        self.scenes = _scenes(object_set, scenes, fewest, most, scene_seed)
        self.world = World(num_envs, designs_of(object_set), most, min(cores, num_envs))

        n = num_envs
        self._latency_schedule = np.zeros((n, max_steps), np.int64)
        self._period_schedule = np.zeros((n, max_steps), np.int64)
        self._steps = np.zeros(n, np.int64)
        self._finished = np.zeros(n, bool)
        self._latency_s: Array = np.zeros(n)
        self._measures = _Measures(n)
        geoms = self.world.model.ngeom
        self._jitter = (camera_jitter, light_jitter, colour_jitter)
        self._follows = camera == "following"
        moves = self._follows or camera_jitter > 0
        self._look = Look(
            colours=np.zeros((n, geoms, 3)),
            position=np.zeros((n, 3)) if moves else None,
            target=np.zeros((n, 3)) if moves else None,
            light=np.zeros((n, 3)) if light_jitter else None,
        )
        # The upper arm is never in view of a camera that stands still.
        self._camera = Camera(
            FOLLOWING_VIEWPOINT if self._follows else VIEWPOINT,
            image_size,
            image_size,
            samples=1,
            groups=None if moves else (0,),
        )
        self._wide_camera = Camera(WIDE_VIEWPOINT)
        self.camera_s = 0.0  # spent on pictures so far
        self._image: Image = np.zeros((n, image_size, image_size, 3), np.uint8)
        self._depth = np.zeros((n, image_size, image_size), np.float32) if depth else None

        objects_seen = tuple(f"object{k}:{name}" for k in range(most) for name in _OBJECT)
        self._is_image = observation == "image"
        self.layout = Layout(
            base=_HAND if self._is_image else (*_HAND, *_WHERE, *objects_seen),
            action=action_columns.NAMES,
            controlled=CONTROLLED,
            features=knowledge,
        )
        self._past = Past(self.layout, n)
        bound = np.full(len(self.layout.base), 1 if self._is_image else np.inf)
        low, high = self.layout.bounds(
            0 * bound if self._is_image else -bound,
            bound,
            action_columns.LOW,
            action_columns.HIGH,
        )
        state = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        self.single_observation_space: spaces.Space[Any] = state
        if self._is_image:
            parts: dict[str, spaces.Space[Any]] = {
                "image": spaces.Box(0, 255, self._image.shape[1:], np.uint8),
                "state": state,
            }
            if self._depth is not None:
                parts["depth"] = spaces.Box(0, FAR_M, self._depth.shape[1:], np.float32)
            self.single_observation_space = spaces.Dict(parts)
        self.single_action_space = spaces.Box(
            action_columns.LOW.astype(np.float32), action_columns.HIGH.astype(np.float32)
        )
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": max(1, round(1 / (self.timing.shortest_period_ticks * TICK_S))),
            "autoreset_mode": self.autoreset_mode,
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of every column of the state."""
        return self.layout.columns

    @property
    def steps_taken(self) -> NDArray[np.int64]:
        """Steps of the episodes under way."""
        return self._steps.copy()

    def next_latency_ticks(self) -> NDArray[np.int64]:
        """The latencies of the coming step: for scripted policies, which know everything."""
        step = np.minimum(self._steps, self.max_steps - 1)
        return np.asarray(self._latency_schedule[np.arange(self.num_envs), step])

    def privileged(self) -> NDArray[np.float32]:
        """What an image ought to tell: (n, numbers); `privileged_weights` says how they count.

        The hand's height and yaw; of each object, nearest first, its offset from the hand in units
        of 5 cm, and the direction across it relative to the hand (cosine and sine of twice the
        angle).
        """
        pose = self.world.pose()
        seen = self._objects(np.arange(self.num_envs), pose)
        offset = seen[..., 1:4] * (_OFFSET_M / 0.05)
        twice = np.arctan2(seen[..., 5], seen[..., 4]) - 2 * pose[:, None, 3]
        there = seen[..., :1]
        turned = np.stack([np.cos(twice), np.sin(twice)], axis=2) * there
        hand = np.stack([pose[:, 2] / 0.05 - 2, pose[:, 3]], axis=1)
        objects = np.concatenate([offset, turned], axis=2).reshape(self.num_envs, -1)
        return np.concatenate([hand, objects], axis=1).astype(np.float32)

    @property
    def privileged_weights(self) -> NDArray[np.float32]:
        """Of the numbers of `privileged`; they sum to 1.

        Places count more than directions, and the nearest object more than the others.
        """
        place = np.array([1.0, 1.0, 1.0, 0.3, 0.3])
        weights = np.concatenate([[1.0, 1.0], place, *[place / 4] * (self.world.slots - 1)])
        return (weights / weights.sum()).astype(np.float32)

    def step(self, actions: Any) -> tuple[Any, Array, Mask, Mask, Info]:
        """From capture to next capture: the action in flight, then `actions` from the switch on."""
        waiting = self._waiting()
        actions = np.asarray(actions, float)
        if actions.shape != (self.num_envs, action_columns.SIZE) or not np.isfinite(actions).all():
            raise ValueError(
                f"actions must be {self.num_envs} x {action_columns.SIZE} numbers "
                f"({', '.join(action_columns.NAMES)}), got {actions!r}"
            )
        actions = np.clip(actions, action_columns.LOW, action_columns.HIGH)
        displacement, grip, terminate = action_columns.decode(actions)
        step = np.minimum(self._steps, self.max_steps - 1)
        rows = np.arange(self.num_envs)
        latency_ticks = self._latency_schedule[rows, step]
        period_ticks = self._period_schedule[rows, step] if self.mode == "concurrent" else None
        self._past.push(np.zeros((self.num_envs, 0)), actions)

        at_switch = self._space_for_switch() if self.observe_switch else None

        def observe_at_switch(switching: Mask) -> None:
            if at_switch is not None:
                self._latency_s[switching] = latency_ticks[switching] * TICK_S
                _copy_rows(at_switch, self._observe(np.flatnonzero(switching)), switching)

        decision = self.world.decide(
            displacement, grip, latency_ticks, period_ticks, ~waiting, terminate, observe_at_switch
        )
        self._check_physics()
        self._steps += ~waiting
        self._latency_s = latency_ticks * TICK_S
        pose = self.world.pose()
        self._measures.add(decision, pose, ~waiting)

        lifted = self.world.lifted().any(axis=1)
        last = terminate | (self._steps >= self.max_steps)
        self._finished = waiting | last | (lifted & self.end_on_success)
        success = lifted & self._finished & ~waiting
        # A success is paid and final. So is a failure that the policy chose by terminating; at the
        # step limit a failed episode is only cut off.
        terminated = success | (terminate & ~waiting)

        share = latency_ticks / np.maximum(decision.period_ticks, 1)
        penalty = np.where(waiting, 0.0, self.step_penalty)
        paid = success.astype(float)
        before = np.where(terminate, paid, 0.0) - penalty * share
        after = np.where(terminate, 0.0, paid) - penalty * (1 - share)
        info: Info = {
            "reward_before_switch": before,
            "reward_after_switch": after,
            "latency_s": self._latency_s.copy(),
            "period_s": decision.period_ticks * TICK_S,
        }
        if at_switch is not None:
            info["observation_at_switch"] = at_switch
        observation, ended = self._conclude(info, self._measures.report(success, pose), waiting)
        return observation, before + after, terminated & ended, ended & ~terminated, info

    def render(self) -> tuple[Image, ...] | None:
        """A picture of each arm."""
        if self.render_mode is None:
            return None
        ids = np.arange(self.num_envs)
        colours = Look(colours=self._look.colours)
        return tuple(self._wide_camera.of_batch(self.world.batch, ids, colours))

    def _knowledge(self) -> Info:
        return {
            "previous_action": self._past.actions[:, 0].copy(),
            "selection_time": selection_time(self._latency_s, self.timing.latency_high_s),
            "vector_to_go": self.world.vector_to_go(),
        }

    @property
    def _over(self) -> Mask:
        return self._finished

    def _begin(self, ids: NDArray[np.integer]) -> None:
        assert self._rngs is not None
        drawn = np.array([self._rngs[i].integers(len(self.scenes), size=2) for i in ids])
        self.scenes.start(self.world, ids, drawn[:, 0], hands=drawn[:, 1])
        for i in ids:
            draw = self.timing.episode(self._rngs[i])
            self._latency_schedule[i], self._period_schedule[i] = draw(self.max_steps)
            self._paint(int(i), self._rngs[i])
        self._steps[ids] = 0
        self._finished[ids] = False
        self._latency_s[ids] = 0
        self._past.reset(ids, np.zeros((len(ids), len(self.layout.base))))
        self._measures.reset(ids)

    def _paint(self, i: int, rng: np.random.Generator) -> None:
        """How environment i looks in its new episode."""
        camera, light, colour = self._jitter
        look = self._look
        assert look.colours is not None
        look.colours[i] = self.world.fields["geom_rgba"][i, :, :3]
        if colour:
            look.colours[i] *= 1 + colour * rng.uniform(-1, 1, look.colours[i].shape)
            np.clip(look.colours[i], 0, 1, out=look.colours[i])
        if look.position is not None and look.target is not None:
            look.position[i] = VIEWPOINT.position + camera * rng.uniform(-1, 1, 3)
            look.target[i] = VIEWPOINT.target + 0.5 * camera * rng.uniform(-1, 1, 3)
        if look.light is not None:
            direction = LIGHT + light * rng.uniform(-1, 1, 3)
            look.light[i] = direction / np.linalg.norm(direction)

    def _capture(self, ids: NDArray[np.integer] | None = None) -> Any:
        if not self._is_image:
            return self._state(np.arange(self.num_envs))
        everyone = np.arange(self.num_envs) if ids is None else ids
        seen = self._photograph(everyone)
        if ids is None:
            self._image, self._depth = seen
        else:  # what was handed out before stays as it was
            self._image = self._image.copy()
            self._image[ids] = seen[0]
            if self._depth is not None and seen[1] is not None:
                self._depth = self._depth.copy()
                self._depth[ids] = seen[1]
        return self._dict(self._image, self._depth, self._state(np.arange(self.num_envs)))

    def _observe(self, ids: NDArray[np.integer]) -> Any:
        """What environments `ids` observe now."""
        state = self._state(ids)
        return self._dict(*self._photograph(ids), state) if self._is_image else state

    def _photograph(self, ids: NDArray[np.integer]) -> tuple[Image, NDArray[np.float32] | None]:
        started = time.perf_counter()
        batch, look = self.world.batch, self._look.of(ids)
        if self._follows and look.target is not None:
            hand = self.world.pose()[ids, :3]
            hand[:, 2] = FOLLOWED_HEIGHT_M
            look = replace(look, target=look.target + hand - VIEWPOINT.target)
        depth = None
        if self._depth is None:
            image = self._camera.of_batch(batch, ids, look)
        else:
            image, depth = self._camera.with_depth(batch, ids, look)
        self.camera_s += time.perf_counter() - started
        return image, depth

    def _dict(self, image: Image, depth: Any, state: NDArray[np.float32]) -> dict[str, Any]:
        parts = {"image": image, "state": state}
        return parts if depth is None else {**parts, "depth": depth}

    def _state(self, ids: NDArray[np.integer]) -> NDArray[np.float32]:
        pose = self.world.pose()[ids]
        height = (pose[:, 2] - LOW[2]) / (HIGH[2] - LOW[2])
        hand = np.clip(np.stack([self.world.opening()[ids], height], axis=1), 0, 1)
        base = hand if self._is_image else np.concatenate([hand, self._places(ids, pose)], axis=1)
        past = Past(self.layout, len(ids))
        past.actions[:] = self._past.actions[ids]
        return self.layout.assemble(
            base,
            selection_time(self._latency_s[ids], self.timing.latency_high_s),
            self.world.vector_to_go()[ids],
            past,
        ).astype(np.float32)

    def _places(self, ids: NDArray[np.integer], pose: Array) -> Array:
        """Where the hand is and, relative to it, the objects: nearest first."""
        middle, half = (LOW + HIGH) / 2, (HIGH - LOW) / 2
        hand = ((pose - middle) / half)[:, [0, 1, 3]]
        return np.concatenate([hand, self._objects(ids, pose).reshape(len(ids), -1)], axis=1)

    def _objects(self, ids: NDArray[np.integer], pose: Array) -> Array:
        """Of each object, nearest first: the columns of _OBJECT, (len(ids), slots, columns)."""
        n, slots = len(ids), self.world.slots
        objects, there = self.world.objects()[ids], self.world.there()[ids]
        yaw, width = across(
            objects[..., 3:].reshape(-1, 4), self.world.half_extents[ids].reshape(-1, 3)
        )
        twice = 2 * yaw.reshape(n, slots)
        offset = (objects[..., :3] - pose[:, None, :3]) / _OFFSET_M
        seen = np.concatenate(
            [
                np.ones((n, slots, 1)), offset, np.cos(twice)[..., None], np.sin(twice)[..., None],
                width.reshape(n, slots, 1) / _WIDTH_M,
            ],
            axis=2,
        )  # fmt: skip
        seen[~there] = 0
        distance = np.where(there, np.linalg.norm(offset[..., :2], axis=2), np.inf)
        order = distance.argsort(axis=1)
        return np.take_along_axis(seen, order[..., None], axis=1)

    def _space_for_switch(self) -> Any:
        if not self._is_image:
            return np.zeros((self.num_envs, len(self.columns)), np.float32)
        state = np.zeros((self.num_envs, len(self.columns)), np.float32)
        depth = None if self._depth is None else np.zeros_like(self._depth)
        return self._dict(np.zeros_like(self._image), depth, state)

    def _check_physics(self) -> None:
        warning = self.world.batch.warning
        if warning.any():
            unstable = np.flatnonzero(warning.any(axis=(1, 2))).tolist()
            raise RuntimeError(f"the physics of grasping became unstable in {unstable}")


class GraspEnv(OneEnv):
    """One grasping environment. Takes the options of `GraspVectorEnv`."""

    def __init__(
        self,
        mode: Literal["concurrent", "blocking"] = "concurrent",
        latency: float | LatencyModel = 0.1,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        EzPickle.__init__(self, mode, latency, render_mode, **options)
        for name in ("num_envs", "threads", "autoreset_mode"):
            if name in options:
                raise ValueError(f"{name} is for many environments: use gymnasium.make_vec")
        vector = GraspVectorEnv(
            1,
            mode,
            latency,
            threads=1,
            autoreset_mode=AutoresetMode.DISABLED,
            render_mode=render_mode,
            **options,
        )
        self._unpack(vector)
        self.columns = vector.columns


class _Measures:
    """What is reported of an episode, summed up while it runs.

    completion: of the commanded displacements, how much was done when the next observation was
        taken: what was moved along the commanded directions (overshoot left out), summed, over
        the sum of their lengths; completion_until_switch: the same when the next action took over.
    jerk: root mean square of the fingertips' third derivative, from their places at every turn of
        the controller.
    """

    def __init__(self, n: int) -> None:
        self.seconds = np.zeros(n)
        self.first_latency_s = np.full(n, np.nan)
        self.commanded_m = np.zeros(n)
        self.executed_m = np.zeros(n)  # up to the next observations
        self.until_switch_m = np.zeros(n)  # up to the next switches
        self.asked_m = np.zeros((n, 3))  # of the action in flight
        self.from_m = np.zeros((n, 3))
        self.squared_jerk = np.zeros(n)
        self.jerks = np.zeros(n, np.int64)
        # Place, velocity and acceleration, and when: NaN until there are enough places.
        self.derivatives = np.full((3, n, 3), np.nan)
        self.when_s = np.full((3, n), np.nan)
        self.clock_s = np.zeros(n)

    def reset(self, ids: NDArray[np.integer]) -> None:
        for total in (
            self.seconds, self.commanded_m, self.executed_m, self.until_switch_m, self.asked_m,
            self.squared_jerk, self.jerks, self.clock_s,
        ):  # fmt: skip
            total[ids] = 0
        self.first_latency_s[ids] = np.nan
        self.derivatives[:, ids] = np.nan
        self.when_s[:, ids] = np.nan

    def add(self, decision: Decision, pose: Array, active: Mask) -> None:
        latency_s = decision.latency_ticks * TICK_S
        self.seconds += np.where(active, decision.period_ticks * TICK_S, 0)
        fresh = active & np.isnan(self.first_latency_s)
        self.first_latency_s[fresh] = latency_s[fresh]

        switch, asked = decision.pose_at_switch[:, :3], decision.commanded[:, :3]
        self.until_switch_m += np.where(active, _along(switch - self.from_m, self.asked_m), 0)
        self.commanded_m += np.where(active, np.linalg.norm(asked, axis=1), 0)
        self.executed_m += np.where(active, _along(pose[:, :3] - switch, asked), 0)
        self.from_m[active], self.asked_m[active] = switch[active], asked[active]
        self._add_jerk(decision)

    def _add_jerk(self, decision: Decision) -> None:
        if not decision.trail:
            return
        n = len(self.seconds)
        joints = np.concatenate([joints for _, joints in decision.trail])
        places = kinematics.forward(joints)[0].reshape(-1, n, 3)
        for (ticks, _), place in zip(decision.trail, places, strict=True):
            turn = ticks > 0
            # Differences belong to the middle of what they are differences of.
            value, when = place, self.clock_s
            for k in range(3):
                last, then = self.derivatives[k].copy(), self.when_s[k].copy()
                self.derivatives[k][turn], self.when_s[k][turn] = value[turn], when[turn]
                value = (value - last) / (when - then)[:, None]
                when = (when + then) / 2
            known = turn & np.isfinite(value).all(axis=1)
            self.squared_jerk[known] += (value[known] ** 2).sum(axis=1)
            self.jerks[known] += 1
            self.clock_s += ticks * TICK_S

    def report(self, success: Mask, pose: Array) -> Info:
        """`pose`: at the end of the episode, which is also that of the action in flight."""
        last = _along(pose[:, :3] - self.from_m, self.asked_m)
        return {
            "success": success.copy(),
            "duration_s": self.seconds.copy(),
            "policy_duration_s": self.seconds - np.nan_to_num(self.first_latency_s),
            "completion": _ratio(self.executed_m, self.commanded_m),
            "completion_until_switch": _ratio(self.until_switch_m + last, self.commanded_m),
            "jerk": np.sqrt(_ratio(self.squared_jerk, self.jerks.astype(float))),
        }


def _along(moved: Array, asked: Array) -> Array:
    """How far `moved` (n, 3) goes along `asked`, no farther than it."""
    length = np.linalg.norm(asked, axis=1)
    inner = (moved * asked).sum(axis=1)
    done = np.divide(inner, length, out=np.zeros_like(inner), where=length > 1e-6)
    return np.minimum(done, length)


def _ratio(a: Array, b: Array) -> Array:
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def _copy_rows(into: Any, rows: Any, where: Mask) -> None:
    if isinstance(into, dict):
        for name, part in into.items():
            part[where] = rows[name]
    else:
        into[where] = rows


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _check_between(name: str, value: Any, most: float) -> None:
    if not isinstance(value, (int, float, np.number)) or not 0 <= value <= most:
        raise ValueError(f"{name} must be a number from 0 to {most:g}, got {value!r}")


def _counts(objects: int | tuple[int, int]) -> tuple[int, int]:
    pair: Any = objects if isinstance(objects, (tuple, list)) else (objects, objects)
    whole = [isinstance(c, (int, np.integer)) and not isinstance(c, bool) for c in pair]
    if len(pair) != 2 or not all(whole):
        raise ValueError(f"objects must be a number, or two: fewest and most; got {objects!r}")
    return int(pair[0]), int(pair[1])


def _timing(
    mode: str, latency: float | LatencyModel, period: float | None, execution: float | None
) -> Timing:
    model = as_latency(latency)
    if mode == "blocking":
        if period is not None or execution is not None:
            raise ValueError("in blocking mode an action takes the time it takes: no period")
        return Timing(model, execution_s=PERIOD_S, tick_s=TICK_S)  # for its latencies alone
    if period is None and execution is None:
        period = PERIOD_S
    return Timing(model, period_s=period, execution_s=execution, tick_s=TICK_S)


@lru_cache(maxsize=4)
def _scenes(object_set: str, count: int, fewest: int, most: int, seed: int) -> Scenes:
    return make_scenes(designs_of(object_set), count, fewest, most, seed, available_cores())
