"""A robot of LeRobot: an object with its verbs, whose numbers have names; nothing is imported.

LeRobot's robots observe `{feature: value}` and are told `{feature: value}`: floats for joints
(`shoulder_pan.pos`), arrays for cameras. They do not say when they captured, so a capture counts
from when it was asked for, and have no limits of their own beyond what `send_action` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.realtime.clock import Clock
from midstride.realtime.robot import Controlled, Declared, Observation, Sent, Stamp

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


class LeRobotRobot:
    """A LeRobot robot whose actions are places of its joints.

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
        seen, told = robot.observation_features, robot.action_features
        self._columns = tuple(name for name, kind in seen.items() if kind is float)
        self._actions = tuple(told)
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
        state = spaces.Box(-np.inf, np.inf, (len(self._columns),), np.float32)
        image = None if camera is None else spaces.Box(0, 255, seen[camera], np.uint8)
        self._declared = Declared(
            name=robot.name,
            observation_space=(
                state if image is None else spaces.Dict({"image": image, "state": state})
            ),
            action_space=spaces.Box(low, high, dtype=np.float32),
            columns=self._columns,
            hold=None,  # where it is: a place that is not known before
            controlled=self._places(low, high),
        )
        self._target: Array | None = None

    def _places(self, low: Array, high: Array) -> Controlled | None:
        """Its joints, where all that it is told are places that it also observes."""
        if not set(self._actions) <= set(self._columns):
            return None
        return Controlled(self._actions, (high - low) / 2, np.zeros(len(low), bool))

    @property
    def declared(self) -> Declared:
        return self._declared

    def connect(self) -> None:
        self._robot.connect()
        self._target = None

    def arm(self) -> None:
        """It is armed whenever it is connected."""

    def get_observation(self) -> Observation:
        asked_s = self._clock.now_s()
        seen = self._robot.get_observation()
        state = np.array([float(seen[name]) for name in self._columns], np.float32)
        position = self._position(seen)
        if self._target is None:  # nothing was told: it stays
            self._target = position
        values = state if self._camera is None else {"image": seen[self._camera], "state": state}
        return Observation(values, asked_s, position, self._target)

    def send_action(self, action: Any, stamp: Stamp) -> Sent:
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
        seen = self._robot.get_observation()
        if self._declared.controlled is not None:
            self._robot.send_action({name: float(seen[name]) for name in self._actions})

    def disconnect(self) -> None:
        self._robot.disconnect()

    def _position(self, seen: Mapping[str, Any]) -> Array | None:
        if self._declared.controlled is None:
            return None
        return np.array([float(seen[name]) for name in self._actions])
