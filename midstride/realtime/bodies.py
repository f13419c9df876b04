"""What moves, one tick at a time, under a robot's name: any Gymnasium environment, or our tasks."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.envs.actions import check_hold, kept
from midstride.envs.knower import base_columns
from midstride.envs.own_time import steps_time
from midstride.realtime.limiter import Guide
from midstride.realtime.robot import Controlled, Declared, Limits
from midstride.sim.camera import Camera, Image, draw_disc
from midstride.tasks.env import MARKER_RGB
from midstride.tasks.settings import make_task

Array = NDArray[np.floating]


class Measured(NamedTuple):
    """What can be measured now; position: (controlled dims,) or None.

    score: reward since the episode began
    """

    values: Any
    position: Array | None
    over: bool
    score: float


class Glance(NamedTuple):
    """What is remembered of an instant: it costs no picture.

    snapshot: what `picture` draws it from
    """

    position: Array | None
    score: float
    snapshot: Any


class Body(Protocol):
    """Something that moves by ticks, and follows what it was told last."""

    tick_s: float
    declared: Declared
    catches_up: bool  # whether it can live through ticks that are over, as a simulation does
    guide: Guide | None  # how it goes to a place; None: as fast as its limits allow

    def begin(self, seed: int | None) -> None:
        """An episode begins, at rest."""
        ...

    def measure(self) -> Measured: ...

    def glance(self) -> Glance: ...

    def picture(self, snapshot: Any) -> Image:
        """What the body looked like then; of one that `Declared.recalls`."""
        ...

    def is_at_rest(self) -> bool:
        """Whether it has arrived where it was told to go; of one that has `Declared.arrives_s`."""
        ...

    def check(self, action: Any) -> Any:
        """The action as it is taken; an error if it is none."""
        ...

    def target(self, action: Any) -> Array | None:
        """The place that an action means, from where the body is now; None: it means no place."""
        ...

    def follow(self, action: Any, place: Array | None) -> None:
        """What the actuators are told from now on: a place, where actions mean places."""
        ...

    def rest(self) -> Array | None:
        """Stay here from now on; which place that is, where actions mean places."""
        ...

    def tick(self) -> None: ...

    def close(self) -> None:
        """It is used no more."""
        ...


class GymBody:
    """Any Gymnasium environment: its own steps are the ticks."""

    catches_up = True
    guide: Guide | None = None

    def __init__(
        self, env: gymnasium.Env[Any, Any], step_s: float | None = None, hold: Any = None
    ) -> None:
        self.tick_s = steps_time(env, step_s).tick_s
        self._env = env
        rest = check_hold(hold, env.action_space)
        self.declared = Declared(
            name=str(env.unwrapped),
            observation_space=env.observation_space,
            action_space=env.action_space,
            columns=base_columns(env.observation_space),
            pauses=True,
        )
        self._resting = self._action = rest
        self._measured = Measured(None, None, True, 0.0)

    def begin(self, seed: int | None) -> None:
        observation, _ = self._env.reset(seed=seed)
        self._action = self._resting
        self._measured = Measured(observation, None, False, 0.0)

    def measure(self) -> Measured:
        return self._measured

    def glance(self) -> Glance:
        return Glance(None, self._measured.score, None)

    def picture(self, snapshot: Any) -> Image:
        raise ValueError(f"{self.declared.name} is not remembered: it cannot be drawn afterwards")

    def is_at_rest(self) -> bool:
        raise ValueError(f"{self.declared.name} does not say when it has arrived")

    def check(self, action: Any) -> Any:
        return checked_action(action, self.declared.action_space)

    def target(self, action: Any) -> None:
        return None

    def follow(self, action: Any, place: Array | None) -> None:
        self._action = kept(action)

    def rest(self) -> None:
        self._action = self._resting
        return

    def close(self) -> None:
        self._env.close()

    def tick(self) -> None:
        if self._measured.over:
            return
        observation, reward, terminated, truncated, _ = self._env.step(self._action)
        score = self._measured.score + float(reward)
        self._measured = Measured(observation, None, bool(terminated or truncated), score)


# How fast the place may move that the servo is told: velocity, acceleration, jerk, in metres. The
# servo itself is slower. With these a displacement of 0.2 m takes 50 ms to be told. They were found
# by trying five with two policies: that is no proof that others keep their return.
_TASK_LIMITS = {"cartpole": (12.0, 400.0, 8e4)}


class TaskBody:
    """One of our tasks, as plain MuJoCo: actions are displacements, targets are places.

    actions: how many discrete displacements there are; None: continuous
    """

    catches_up = True
    guide: Guide | None = None

    def __init__(self, name: str, actions: int | None = None, tick_s: float = 0.005) -> None:
        self._task = task = make_task(name, tick_s)
        self.tick_s = tick_s
        controlled = task.controlled
        self._displacements = None if actions is None else task.displacements(actions)
        size = len(controlled.names)
        low, high = (
            np.asarray(b, np.float32) for b in (task.observation_low, task.observation_high)
        )
        self.declared = Declared(
            name=name,
            observation_space=spaces.Box(low, high, dtype=np.float32),
            action_space=(
                spaces.Box(-1, 1, (size,), np.float32)
                if self._displacements is None
                else spaces.Discrete(len(self._displacements))
            ),
            columns=task.columns,
            controlled=Controlled(controlled.names, controlled.scale, controlled.wraps),
            limits=_limits(name, controlled.low, controlled.high),
            pauses=True,
            recalls=True,
        )
        self._data = mujoco.MjData(task.model)
        self._camera = Camera(task.viewpoint)
        self._score = 0.0

    def begin(self, seed: int | None) -> None:
        mujoco.mj_resetData(self._task.model, self._data)
        qpos, qvel = self._task.initial(np.random.default_rng(seed))
        self._data.qpos[:], self._data.qvel[:] = qpos, qvel
        self._data.ctrl[:] = self._data.qpos[self._task.controlled.qpos]
        self._score = 0.0

    def measure(self) -> Measured:
        data = self._data
        values = self._task.observe(data.qpos, data.qvel).astype(np.float32)
        position = data.qpos[self._task.controlled.qpos].copy()
        return Measured(values, position, False, self._score)

    def glance(self) -> Glance:
        place = self._data.qpos[self._task.controlled.qpos].copy()
        return Glance(place, self._score, (self._data.qpos.copy(), self._data.ctrl.copy()))

    def picture(self, snapshot: Any) -> Image:
        """As in simulation; the disc marks the place that its servo was told then."""
        qpos, told = snapshot
        model, then = self._task.model, mujoco.MjData(self._task.model)
        then.qpos[:] = qpos
        mujoco.mj_forward(model, then)
        image = self._camera.of_data(model, then)
        column, row = self._camera.project(self._task.marker(qpos, told))
        draw_disc(image, column, row, radius=0.02 * self._camera.height, rgb=MARKER_RGB)
        return image

    def is_at_rest(self) -> bool:
        raise ValueError(f"{self.declared.name} does not say when it has arrived")

    def check(self, action: Any) -> Any:
        return checked_action(action, self.declared.action_space)

    def target(self, action: Any) -> Array:
        controlled = self._task.controlled
        displacement = action if self._displacements is None else self._displacements[int(action)]
        move = np.clip(np.asarray(displacement, float), -1.0, 1.0) * controlled.scale
        return self._reachable(self._data.qpos[controlled.qpos] + move)

    def follow(self, action: Any, place: Array | None) -> None:
        assert place is not None
        self._data.ctrl[:] = place

    def rest(self) -> Array:
        place = self._reachable(self._data.qpos[self._task.controlled.qpos])
        self._data.ctrl[:] = place
        return place

    def _reachable(self, place: Array) -> Array:
        return np.clip(place, self._task.controlled.low, self._task.controlled.high)

    def close(self) -> None:
        pass

    def tick(self) -> None:
        task, data = self._task, self._data
        mujoco.mj_step(task.model, data)
        self._score += float(task.reward(data.qpos, data.qvel)) * task.reward_per_s * self.tick_s


def _limits(name: str, low: Array, high: Array) -> Limits | None:
    if name not in _TASK_LIMITS:
        return None
    velocity, acceleration, jerk = (np.full(len(low), limit) for limit in _TASK_LIMITS[name])
    return Limits(low, high, velocity, acceleration, jerk)


def checked_action(action: Any, space: spaces.Space[Any]) -> Any:
    """An action as the space has it, or an error: shape, type, finite numbers, choices.

    Numbers beyond the bounds of a Box are kept within them.
    """
    wrong = ValueError(f"an action must be of {space}, got {str(action)[:80]}")
    if isinstance(space, spaces.Discrete):
        is_whole = isinstance(action, (int, np.integer)) and not isinstance(action, bool)
        if not is_whole or not space.start <= int(action) < space.start + space.n:
            raise wrong
        return action
    if not isinstance(space, spaces.Box):
        if action not in space:
            raise wrong
        return action
    try:
        numbers = np.asarray(action, float)
    except (TypeError, ValueError):
        raise wrong from None
    if numbers.shape != space.shape or not np.isfinite(numbers).all():
        raise wrong
    if (numbers < space.low).any() or (numbers > space.high).any():
        return np.clip(numbers, space.low, space.high).astype(space.dtype)
    return action
