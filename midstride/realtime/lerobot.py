"""A robot of LeRobot: an object with its verbs, whose numbers have names; nothing is imported.

LeRobot's robots observe `{feature: value}` and are told `{feature: value}`: floats for joints
(`shoulder_pan.pos`), arrays for cameras. They do not say when they captured, so a capture counts
from when it was asked for, and have no limits of their own beyond what `send_action` returns.

There are two ways to run one. `LeRobotBody`, served by a process of its own (`serve_body` in
`server.py`), has what every served robot has: a watchdog, and limits of position, velocity,
acceleration and jerk on what its joints are told, tick by tick, whatever becomes of the policy.
`LeRobotRobot` is called by the policy's own process: it has no watchdog, and says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.realtime.bodies import Glance, Measured, checked_action
from midstride.realtime.clock import Clock
from midstride.realtime.limiter import Guide
from midstride.realtime.robot import STAY, Controlled, Declared, Limits, Observation, Sent, Stamp

if TYPE_CHECKING:
    from midstride.sim.camera import Image

Array = NDArray[np.floating]


class LeRobot(Protocol):
    """What is used of `lerobot.robots.Robot`."""

    name: str
    observation_features: Mapping[str, Any]
    action_features: Mapping[str, Any]

    def connect(self) -> None: ...

    def get_observation(self) -> Mapping[str, Any]: ...

    def send_action(self, action: dict[str, Any]) -> Mapping[str, Any]: ...

    def disconnect(self) -> None: ...


class LeRobotBody:
    """A LeRobot robot as a body to be served: actions are places of its joints.

    limits: of what its joints are told, in its own units, in the order of `action_features`
    tick_s: between two places that it is told; reading it must take less
    camera: the feature that the policy sees as `image`; None: it sees numbers alone
    """

    catches_up = False  # a real arm cannot live through ticks that are over
    guide: Guide | None = None  # every joint as fast as its limits allow

    def __init__(
        self, robot: LeRobot, limits: Limits, tick_s: float = 0.02, camera: str | None = None
    ) -> None:
        self._robot, self.tick_s, self._camera = robot, tick_s, camera
        self.declared = replace(_declared(robot, limits.low, limits.high, camera), limits=limits)
        if self.declared.controlled is None:
            raise ValueError(
                f"{robot.name} does not observe all the places that it is told: where it is to "
                "rest is not known, so it cannot be served"
            )
        self._names = tuple(robot.action_features)
        self._place: Array | None = None  # that it was told last
        self._is_told = False  # since the last tick: who is not armed is told nothing
        self._connected = False

    def begin(self, seed: int | None) -> None:
        """It is where it is; a real arm has no episodes."""
        if not self._connected:
            self._robot.connect()
            self._connected = True
        self._place = self._where(self._robot.get_observation())

    def measure(self) -> Measured:
        seen = self._robot.get_observation()
        values = _values(seen, self.declared.columns, self._camera)
        return Measured(values, self._where(seen), False, 0.0)

    def glance(self) -> Glance:
        """Where it was told to be: reading it takes too long for every tick."""
        return Glance(self._place, 0.0, None)

    def picture(self, snapshot: Any) -> Image:
        raise ValueError(f"{self.declared.name} is not remembered: it cannot be drawn afterwards")

    def is_at_rest(self) -> bool:
        raise ValueError(f"{self.declared.name} does not say when it has arrived")

    def check(self, action: Any) -> Any:
        return checked_action(action, self.declared.action_space)

    def target(self, action: Any) -> Array:
        return np.asarray(action, float)

    def follow(self, action: Any, place: Array | None) -> None:
        assert place is not None
        self._place, self._is_told = place, True

    def rest(self) -> Array:
        place = self._where(self._robot.get_observation())
        self._place, self._is_told = place, True
        return place

    def tick(self) -> None:
        if not self._is_told:
            return
        self._is_told = False
        assert self._place is not None
        told = zip(self._names, self._place.tolist(), strict=True)
        self._robot.send_action(dict(told))

    def close(self) -> None:
        if self._connected:
            self._connected = False
            self._robot.disconnect()

    def _where(self, seen: Mapping[str, Any]) -> Array:
        return np.array([float(seen[name]) for name in self._names])


class LeRobotRobot:
    """A LeRobot robot whose actions are places of its joints, in the policy's own process.

    Without a watchdog: if the process dies or hangs, the arm goes on with what it was told last.
    Serve a `LeRobotBody` where that could hurt anybody, or anything.

    low, high: of each action, in the order of `action_features`; actions are kept within them
    camera: the feature that the policy sees as `image`; None: it sees numbers alone
    """

    def __init__(
        self,
        robot: LeRobot,
        clock: Clock,
        low: Array,
        high: Array,
        camera: str | None = None,
    ) -> None:
        self._robot, self._clock, self._camera = robot, clock, camera
        self._actions = tuple(robot.action_features)
        self._declared = _declared(robot, low, high, camera)
        self._target: Array | None = None

    @property
    def declared(self) -> Declared:
        return self._declared

    def connect(self) -> None:
        warnings.warn(
            f"{self._declared.name} has no watchdog in the policy's own process: if it dies or "
            "hangs, the arm goes on with what it was told last; serve a LeRobotBody instead",
            stacklevel=2,
        )
        self._robot.connect()
        self._target = None

    def arm(self) -> None:
        """It is armed whenever it is connected."""

    def get_observation(self) -> Observation:
        asked_s = self._clock.now_s()
        seen = self._robot.get_observation()
        position = self._position(seen)
        if self._target is None:  # nothing was told: it stays
            self._target = position
        values = _values(seen, self._declared.columns, self._camera)
        return Observation(values, asked_s, position, self._target)

    def send_action(self, action: Any, stamp: Stamp) -> Sent:
        if action is STAY or stamp.number < 0:
            refused = None if self._stay() else "it does not observe where it is, and cannot stay"
            return Sent(None, self._clock.now_s(), refused)
        space = self._declared.action_space
        assert isinstance(space, spaces.Box)
        numbers = np.asarray(action, np.float32)
        if numbers.shape != space.shape or not np.isfinite(numbers).all():
            return Sent(None, self._clock.now_s(), f"an action must be of {space}, got {action}")
        numbers = np.clip(numbers, space.low, space.high)
        told = dict(zip(self._actions, numbers.tolist(), strict=True))
        sent = self._robot.send_action(told)
        self._target = np.array([float(sent[name]) for name in self._actions], np.float32)
        return Sent(self._target, self._clock.now_s())

    def stop(self) -> None:
        """It is told to stay where it is: LeRobot has no other way to stop."""
        self._stay()

    def _stay(self) -> bool:
        """Whether it could be told to: where it is must be known."""
        if self._declared.controlled is None:
            return False
        seen = self._robot.get_observation()
        self._robot.send_action({name: float(seen[name]) for name in self._actions})
        self._target = self._position(seen)
        return True

    def disconnect(self) -> None:
        self._robot.disconnect()

    def _position(self, seen: Mapping[str, Any]) -> Array | None:
        if self._declared.controlled is None:
            return None
        return np.array([float(seen[name]) for name in self._actions])


def _declared(robot: LeRobot, low: Array, high: Array, camera: str | None) -> Declared:
    """What such a robot says of itself: its numbers, and a picture if the policy sees one."""
    seen, told = robot.observation_features, robot.action_features
    columns = tuple(name for name, kind in seen.items() if kind is float)
    if camera is not None and not isinstance(seen.get(camera), tuple):
        cameras = [name for name, kind in seen.items() if isinstance(kind, tuple)]
        raise ValueError(
            f"{robot.name} has no camera {camera!r}: choose from {', '.join(cameras) or 'none'}"
        )
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    if low.shape != (len(told),) or high.shape != low.shape or not (low < high).all():
        raise ValueError(
            f"{robot.name} takes {len(told)} numbers ({', '.join(told)}): give a lowest and a "
            "higher highest for each"
        )
    state = spaces.Box(-np.inf, np.inf, (len(columns),), np.float32)
    image = None if camera is None else spaces.Box(0, 255, seen[camera], np.uint8)
    # Its joints, where all that it is told are places that it also observes.
    places = Controlled(tuple(told), (high - low) / 2, np.zeros(len(low), bool))
    return Declared(
        name=robot.name,
        observation_space=state if image is None else spaces.Dict({"image": image, "state": state}),
        action_space=spaces.Box(low, high, dtype=np.float32),
        columns=columns,
        controlled=places if set(told) <= set(columns) else None,
    )


def _values(seen: Mapping[str, Any], columns: tuple[str, ...], camera: str | None) -> Any:
    state = np.array([float(seen[name]) for name in columns], np.float32)
    return state if camera is None else {"image": seen[camera], "state": state}
