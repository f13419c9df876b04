"""The grasping arm as a robot's body: its hand goes where it is told, and its camera sees.

The controller is that of training (`tasks/grasp/world.py`): a turn every 20 ms, inverse kinematics
on the commanded joints. Its reference is the limiter's, which also keeps jerk within limits; so
speeds hold for each axis, where those of training hold along the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.realtime.bodies import Measured, checked_action
from midstride.realtime.robot import Controlled, Declared, Limits
from midstride.tasks.grasp import actions as columns
from midstride.tasks.grasp import kinematics, sight
from midstride.tasks.grasp.env import CONTROLLED, settled_scenes
from midstride.tasks.grasp.model import FINGER_CLOSED_M, FINGER_OPEN_M, TICK_S
from midstride.tasks.grasp.objects import object_set as designs_of
from midstride.tasks.grasp.settings import GraspSettings
from midstride.tasks.grasp.world import CONTROL_TICKS, HIGH, LAG_S, LOW, SCALE, World

Array = NDArray[np.floating]

# x, y, z (metres), yaw (radians), opening (a share): per second, per second squared, and so on.
_VELOCITY = np.array([0.2, 0.2, 0.2, 2.0, 5.0])
_ACCELERATION = np.array([1.2, 1.2, 1.2, 12.0, 100.0])
_JERK = np.array([60.0, 60.0, 60.0, 600.0, 5000.0])
_ALL = np.ones(1, bool)
_IDS = np.zeros(1, int)


class HandBody:
    """One arm over one bin; what it observes is what a policy of `settings` was trained on."""

    def __init__(self, settings: GraspSettings) -> None:
        if settings.depth:
            raise ValueError("a served hand has no depth camera: take a policy without depth")
        self._scenes = settled_scenes(
            settings.object_set, settings.scenes, *settings.counts, settings.scene_seed
        )
        self._world = World(1, designs_of(settings.object_set), settings.counts[1], threads=1)
        jitter = settings.camera_jitter, settings.light_jitter, settings.colour_jitter
        follows = settings.camera == "following"
        self._sight = sight.Sight(self._world, settings.image_size, follows, False, jitter)
        self._sees = settings.observation == "image"
        self.tick_s = TICK_S
        self._ticks, self._over = 0, False
        self._place: Array = np.zeros(5)
        self._target: Array = np.zeros(5)
        self.declared = self._declare(settings)

    def _declare(self, settings: GraspSettings) -> Declared:
        slots = self._world.slots
        seen = tuple(f"object{k}:{part}" for k in range(slots) for part in sight.OBJECT)
        base = sight.HAND if self._sees else (*sight.HAND, *sight.WHERE, *seen)
        low, high = (0.0, 1.0) if self._sees else (-np.inf, np.inf)
        state = spaces.Box(low, high, (len(base),), np.float32)
        size = settings.image_size
        image = spaces.Box(0, 255, (size, size, 3), np.uint8)
        return Declared(
            name="grasp",
            observation_space=spaces.Dict({"image": image, "state": state})
            if self._sees
            else state,
            action_space=spaces.Box(
                columns.LOW.astype(np.float32), columns.HIGH.astype(np.float32)
            ),
            columns=base,
            hold=np.zeros(columns.SIZE, np.float32),
            controlled=Controlled(
                CONTROLLED, np.array([*SCALE, 1.0]), np.array([False, False, False, True, False])
            ),
            limits=Limits(
                np.array([*LOW, 0.0]), np.array([*HIGH, 1.0]), _VELOCITY, _ACCELERATION, _JERK
            ),
            pauses=True,
        )

    def begin(self, seed: int | None) -> None:
        rng = np.random.default_rng(seed)
        scene, hand = rng.integers(len(self._scenes), size=2)
        self._scenes.start(self._world, _IDS, np.array([scene]), hands=np.array([hand]))
        self._sight.paint(0, rng)
        self._ticks, self._over = 0, False
        self._place = self._target = self._measured()

    def _measured(self) -> Array:
        """Pose and opening of the hand, (5,)."""
        return np.append(self._world.pose()[0], self._world.opening()[0])

    def measure(self) -> Measured:
        world, pose = self._world, self._world.pose()
        base = sight.hand_of(world, _IDS, pose)
        if not self._sees:
            base = np.concatenate([base, sight.places_of(world, _IDS, pose)], axis=1)
        values: Any = base[0].astype(np.float32)
        if self._sees:
            image, _ = self._sight.photograph(_IDS)
            values = {"image": image[0], "state": values}
        return Measured(values, self._measured(), self._over, float(world.lifted().any()))

    def check(self, action: Any) -> Any:
        return checked_action(action, self.declared.action_space)

    def target(self, action: Any) -> Array:
        displacement, grip, ends = columns.decode(np.asarray(action, float)[None])
        goal = self._world.pose()[0] + np.clip(displacement[0], -1, 1) * SCALE
        opening = self._target[4] if grip[0] == 0 else float(grip[0] > 0)
        self._over = self._over or bool(ends[0])
        self._target = np.append(np.clip(goal, LOW, HIGH), round(opening))
        return self._target

    def follow(self, action: Any, place: Array | None) -> None:
        assert place is not None
        self._place = place

    def rest(self) -> None:
        self._place = self._measured()

    def tick(self) -> None:
        if self._ticks % CONTROL_TICKS == 0:
            self._control()
        self._world.physics(_ALL, 1)
        self._ticks += 1

    def _control(self) -> None:
        """The controller's turn: joints towards the place, fingers between closed and open."""
        world, dt_s = self._world, np.array([CONTROL_TICKS * TICK_S])
        before = world.commanded_joints.copy()
        after = kinematics.track(before, self._place[None, :4], dt_s)
        world.commanded_joints[:] = after
        world.ctrl[:, world.places.arm] = after + LAG_S * (after - before) / dt_s
        fingers = FINGER_CLOSED_M + self._place[4] * (FINGER_OPEN_M - FINGER_CLOSED_M)
        world.ctrl[:, world.places.fingers] = fingers
