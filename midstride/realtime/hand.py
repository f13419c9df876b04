"""The grasping arm as a robot's body: its hand goes where it is told, and its camera sees.

The controller is that of training (`tasks/grasp/world.py`): a turn every 20 ms, inverse kinematics
on the commanded joints. Its reference is the limiter's, guided by that of training
(`tasks/grasp/motion.py`): the same straight ways at the same speeds, with limited jerk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.realtime.bodies import Glance, Measured, checked_action
from midstride.realtime.limiter import Guide
from midstride.realtime.robot import Controlled, Declared, Limits
from midstride.realtime.strange import Strange
from midstride.sim.camera import Camera, Image, Look
from midstride.tasks.grasp import actions as columns
from midstride.tasks.grasp import kinematics, motion, sight
from midstride.tasks.grasp.env import CONTROLLED, settled_scenes
from midstride.tasks.grasp.model import (
    FINGER_CLOSED_M,
    FINGER_OPEN_M,
    TICK_S,
    WIDE_VIEWPOINT,
)
from midstride.tasks.grasp.objects import object_set as designs_of
from midstride.tasks.grasp.settings import GraspSettings
from midstride.tasks.grasp.world import (
    ARRIVED,
    AT_LEAST_TICKS,
    AT_MOST_TICKS,
    AT_REST,
    CONTROL_TICKS,
    FINGERS_AT_REST_M,
    HIGH,
    LAG_S,
    LOW,
    REFERENCE_ARRIVED,
    SCALE,
    World,
)

Array = NDArray[np.floating]

# x, y, z (metres), yaw (radians), opening (a share): per second, per second squared, and so on. The
# guide changes its velocity once a turn, by what its own acceleration allows in one: to be done
# with that within the turn the reference is allowed more. (A Franka arm is allowed 13 m/s^2
# and 6500 m/s^3.) Fingers are told to close within a turn; their weak servos are slower.
_VELOCITY = np.array([0.2, 0.2, 0.2, 2.0, 100.0])
_ACCELERATION = np.array([3.0, 3.0, 3.0, 30.0, 2e4])
_JERK = np.array([600.0, 600.0, 600.0, 6000.0, 4e6])
_MOTION = motion.Limits()
_TURN_S = CONTROL_TICKS * TICK_S
# Nearer than what is braked away in a turn, the reference goes to its target at once.
_NEAR_M = 2 * _MOTION.acceleration * _TURN_S**2
_NEAR_RAD = 2 * _MOTION.yaw_acceleration * _TURN_S**2
_ALL = np.ones(1, bool)
_IDS = np.zeros(1, int)
_WIDTH, _HEIGHT = 400, 300  # of pictures for people


def _velocity(place: Array, velocity: Array, target: Array) -> Array:
    """The guide of training: along a straight way; fingers close and open as fast as they may."""
    _, wanted = motion.advance(
        place[None, :4], velocity[None, :4], target[None, :4], np.array([_TURN_S]), _MOTION
    )
    to_go = kinematics.difference(target[None, :4], place[None, :4])[0]
    is_near = np.linalg.norm(to_go[:3]) < _NEAR_M
    near = np.array([is_near, is_near, is_near, abs(to_go[3]) < _NEAR_RAD])
    return np.append(np.where(near, np.nan, wanted[0]), np.nan)


class HandBody:
    """One arm over one bin; what it observes is what a policy of `settings` was trained on.

    strange: makes it another arm, over another bin, under another light
    """

    catches_up = True
    guide: Guide | None = Guide(_velocity, CONTROL_TICKS)

    def __init__(self, settings: GraspSettings, strange: Strange | None = None) -> None:
        if strange is not None:
            settings = strange.settings(settings)
        if settings.depth:
            raise ValueError("a served hand has no depth camera: take a policy without depth")
        self._scenes = settled_scenes(
            settings.object_set, settings.scenes, *settings.counts, settings.scene_seed
        )
        designs = designs_of(settings.object_set)
        self._world = World(
            1,
            designs if strange is None else strange.designs(designs),
            settings.counts[1],
            threads=1,
            change=(lambda model: None) if strange is None else strange.change,
        )
        self._drawn: World | None = None  # for pictures of what was
        self._camera = Camera(WIDE_VIEWPOINT, _WIDTH, _HEIGHT)
        jitter = settings.camera_jitter, settings.light_jitter, settings.colour_jitter
        follows = settings.camera == "following"
        self._sight = sight.Sight(self._world, settings.image_size, follows, False, jitter)
        self._sees = settings.observation == "image"
        self.tick_s = TICK_S
        self._ticks, self._over = 0, False
        self._told = 0  # the tick of the last command
        self._fingers = np.zeros((2, 2))  # at the last two turns of the controller
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
            controlled=Controlled(
                CONTROLLED, np.array([*SCALE, 1.0]), np.array([False, False, False, True, False])
            ),
            limits=Limits(
                np.array([*LOW, 0.0]), np.array([*HIGH, 1.0]), _VELOCITY, _ACCELERATION, _JERK
            ),
            pauses=True,
            arrives_s=AT_MOST_TICKS * TICK_S,
            recalls=True,
        )

    def begin(self, seed: int | None) -> None:
        rng = np.random.default_rng(seed)
        scene, hand = rng.integers(len(self._scenes), size=2)
        self._scenes.start(self._world, _IDS, np.array([scene]), hands=np.array([hand]))
        self._sight.paint(0, rng)
        self._ticks, self._over, self._told = 0, False, 0
        self._fingers[:] = self._world.qpos[0, self._world.places.fingers]
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
        return Measured(values, self._measured(), self._over, self._score())

    def _score(self) -> float:
        """1 while an object is clear of the bin."""
        return float(self._world.lifted().any())

    def glance(self) -> Glance:
        return Glance(self._measured(), self._score(), self._world.batch.state[0].copy())

    def picture(self, snapshot: Any) -> Image:
        """The whole arm, in the colours of its episode."""
        world = self._world
        if self._drawn is None:
            self._drawn = World(1, world.designs, world.slots, threads=1)
        for name, rows in world.fields.items():
            self._drawn.fields[name][:] = rows
        self._drawn.batch.state[0] = snapshot
        look = Look(colours=self._sight.look.colours)
        return np.asarray(self._camera.of_batch(self._drawn.batch, _IDS, look)[0])

    def is_at_rest(self) -> bool:
        """As in blocking control of training: arrived, joints and fingers still, or long since."""
        since = self._ticks - self._told
        if since < AT_LEAST_TICKS:
            return False
        if since >= AT_MOST_TICKS:  # something is in its way
            return True
        to_go, reference_to_go = (
            np.abs(kinematics.difference(self._target[None, :4], place[None, :4]))[0]
            for place in (self._measured(), self._place)
        )
        arrived = (to_go < ARRIVED).all() and (reference_to_go < REFERENCE_ARRIVED).all()
        joints = np.abs(self._world.qvel[0, self._world.places.arm])
        moved = np.abs(self._fingers[1] - self._fingers[0]).max()
        return bool(arrived and (joints < AT_REST).all() and moved < FINGERS_AT_REST_M)

    def check(self, action: Any) -> Any:
        return checked_action(action, self.declared.action_space)

    def target(self, action: Any) -> Array:
        displacement, grip, ends = columns.decode(np.asarray(action, float)[None])
        goal = self._world.pose()[0] + np.clip(displacement[0], -1, 1) * SCALE
        opening = self._target[4] if grip[0] == 0 else float(grip[0] > 0)
        self._over = self._over or bool(ends[0])
        self._target = np.append(np.clip(goal, LOW, HIGH), round(opening))
        self._told = self._ticks
        return self._target

    def follow(self, action: Any, place: Array | None) -> None:
        assert place is not None
        self._place = place

    def rest(self) -> Array:
        self._place = self._measured()
        return self._place

    def close(self) -> None:
        self._world.close()

    def tick(self) -> None:
        if self._ticks % CONTROL_TICKS == 0:
            self._control()
        world, opening = self._world, self._place[4]
        fingers = FINGER_CLOSED_M + opening * (FINGER_OPEN_M - FINGER_CLOSED_M)
        world.ctrl[:, world.places.fingers] = fingers
        world.physics(_ALL, 1)
        self._ticks += 1

    def _control(self) -> None:
        """The controller's turn: joints towards the place.

        In training a turn knows where the reference will be at its end; here it knows where it is.
        So what is fed forward against lag makes up for a turn, too.
        """
        world, dt_s = self._world, np.array([_TURN_S])
        self._fingers = np.stack([self._fingers[1], world.qpos[0, world.places.fingers]])
        before = world.commanded_joints.copy()
        after = kinematics.track(before, self._place[None, :4], dt_s)
        world.commanded_joints[:] = after
        world.ctrl[:, world.places.arm] = after + (LAG_S + dt_s) * (after - before) / dt_s
