"""Concurrent control for environments that others wrote.

`Concurrent` splits the physics inside a step at the switch and touches nothing else: reward,
observation, termination and resets are the environment's own code. When the switch comes is
decided in `flight.py`; the plant that it drives is in `physics.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.envs.physics import MovesByTicks, Physics, action_scale, actuator_names
from midstride.flight_of_one import FlightOfOne
from midstride.knowledge import Layout, Past, check_features, one_hot, selection_time, vector_to_go
from midstride.latency import LatencyModel, as_latency
from midstride.seconds import DoesNotFit, check_divides, finer_tick_s
from midstride.timing import Timing

Array = NDArray[np.float64]
Info = dict[str, Any]


@runtime_checkable
class Observes(Protocol):
    """An environment that can be asked at any instant what it observes."""

    def _get_obs(self) -> Any: ...


@dataclass
class _Step:
    """What is known of the step under way."""

    latency_ticks: int
    decided: bool = False  # the environment has said what to do
    at_switch: tuple[Any, Array | None] | None = None  # what it observes; actuator lengths


class Concurrent(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Any Gymnasium MuJoCo environment, moving while the agent thinks.

    env: an environment that moves by `MujocoEnv.do_simulation`, as Gymnasium's own do
    latency: seconds from an observation to the switch to the action chosen on it, at most the
        environment's own `dt`, which is the period; or a latency model
    knowledge: any of previous_action, selection_time, vector_to_go (position actuators only)
    stack_observations, stack_actions: how many previous ones (0 to 4) are observed too
    tick: seconds of a finer physics timestep, for latencies that the environment's own is too
        coarse for; it must divide that one. The period stays; the integration becomes finer, so
        trajectories are not those of the bare environment, at latency 0 neither
    observe_switch: whether info holds what would be observed at the switch (it costs time)

    Without knowledge or stacking the observation is the environment's own, unchanged; with them
    it is a flat Box that starts with it. After a reset, until the first switch, motors get zero
    control and position actuators hold. Vector-to-go is the control as the actuator takes it (kept
    within its range) minus actuator length, not wrapped: these actuators are told a place, not a
    displacement.

    `info` of a step is the environment's own and
        latency_s, period_s: of this step
        reward_before_switch, reward_after_switch: an environment pays once per step, so the split
            is in proportion to time
        observation_switch: only with observe_switch; what would be observed at the switch, with
            the new action in force
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        latency: float | LatencyModel = 0.0,
        knowledge: Iterable[str] = (),
        stack_observations: int = 0,
        stack_actions: int = 0,
        tick: float | None = None,
        observe_switch: bool = False,
    ) -> None:
        knowledge = check_features(knowledge)
        self._arguments: dict[str, Any] = {
            "latency": latency,
            "knowledge": knowledge,
            "stack_observations": stack_observations,
            "stack_actions": stack_actions,
            "tick": tick,
            "observe_switch": observe_switch,
        }
        gymnasium.utils.RecordConstructorArgs.__init__(self, **self._arguments)
        gymnasium.Wrapper.__init__(self, env)
        inner = _innermost(env, observe_switch)
        self._inner = cast(Any, inner)  # its own methods are called, and replaced during a step
        self.timing = _timing(inner, latency, tick)
        self._plant = Physics(inner, self.timing.tick_s)
        self.layout = Layout(
            base=_base_columns(env.observation_space),
            action=_action_columns(env.action_space),
            controlled=actuator_names(inner.model) if self._plant.servos.all() else None,
            features=knowledge,
            stack_observations=stack_observations,
            stack_actions=stack_actions,
            units=_units(env.action_space, action_scale(inner.model)),
        )
        if not self.layout.is_plain:
            if not self.layout.base:
                raise ValueError(
                    "knowledge and stacking need an environment that observes a flat Box, not "
                    f"{env.observation_space}"
                )
            self.observation_space = self._widened_space(env)
        if observe_switch:
            self._plant.when_switched = self._observe_switch
        # An environment may move by less than its period in a step: then more are pending.
        self._flight = FlightOfOne(most_pending=self.timing.shortest_period_ticks + 1)
        self._scale = action_scale(inner.model)
        self._rng = np.random.default_rng()
        self._draw: Any = None  # of the episode: None before the first reset
        self._past: Past
        self._last: Any = None
        self._latency_s = 0.0
        self._step = _Step(latency_ticks=0)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or pickled environment starts afresh, as Gymnasium's own do."""
        return Concurrent, (self.env, *self._arguments.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of every column of the observation."""
        return self.layout.columns

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._rng = np.random.default_rng([seed, 1])
        self._draw = self.timing.episode(self._rng)
        self._flight.reset()
        self._plant.hold()
        self._latency_s = 0.0
        if not self.layout.is_plain:
            base = self._base(observation)
            self._past = Past(self.layout, 1, base.dtype.type)
            self._past.reset(np.array([0]), base)
        self._last = observation
        return self._augment(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        if self._draw is None:
            raise RuntimeError("call reset before the first step")
        step = self._step = _Step(latency_ticks=int(self._draw(1)[0][0]))
        began = self._flight.now
        # Only while it steps does the environment move through us; otherwise it is untouched.
        self._inner._step_mujoco_simulation = self._move
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        finally:
            del self._inner._step_mujoco_simulation
        if not step.decided:
            raise RuntimeError(
                f"{self._inner} did not move by do_simulation in this step, so its latency could "
                "not be applied: its step must call self.do_simulation(control, self.frame_skip) "
                "instead of mujoco.mj_step, and a wrapper that resets within a step belongs "
                "outside Concurrent"
            )
        period_ticks = self._flight.now - began
        self._latency_s = step.latency_ticks * self.timing.tick_s
        if not self.layout.is_plain:
            self._past.push(self._base(self._last), self._encode(action))
        self._last = observation
        before = float(reward) * min(1.0, step.latency_ticks / max(1, period_ticks))
        info = {
            **info,
            "reward_before_switch": before,
            "reward_after_switch": float(reward) - before,
            "latency_s": self._latency_s,
            "period_s": period_ticks * self.timing.tick_s,
        }
        if step.at_switch is not None:
            info["observation_switch"] = self._augment(*step.at_switch)
        return self._augment(observation), reward, terminated, truncated, info

    def _move(self, control: Array, ticks: int) -> None:
        """What the environment calls to move, once or several times in a step.

        Its first call is the capture; in a later one the decision is what it says then.
        """
        control = np.array(control, float)
        if self._step.decided:
            self._flight.amend(control)
        else:
            self._flight.capture(control, self._step.latency_ticks)
            self._step.decided = True
        self._flight.period(self._plant, int(ticks) * self._plant.substeps)

    def _observe_switch(self) -> None:
        """Take the environment's observation at the switch, without a trace.

        Looking must not draw from the environment's generator: observations may be noisy.
        """
        if self._step.at_switch is not None or not self._flight.newest_in_force:
            return
        random = self._inner.np_random.bit_generator.state
        observation = self._inner._get_obs()
        self._inner.np_random.bit_generator.state = random
        wanted = "vector_to_go" in self.layout.features
        self._step.at_switch = observation, self._plant.measure_length() if wanted else None

    def _augment(self, observation: Any, actuator_length: Array | None = None) -> Any:
        if self.layout.is_plain:
            return observation
        base = self._base(observation)
        remaining = None
        if "vector_to_go" in self.layout.features:
            if actuator_length is None:
                actuator_length = self._plant.measure_length()
            # Not wrapped: these servos are told a place, and unwind to it the long way if need be.
            no_wrap = np.zeros(len(self._scale), bool)
            remaining = vector_to_go(
                self._plant.target()[None], actuator_length[None], self._scale, no_wrap
            )
        measured = selection_time(np.array([self._latency_s]), self.timing.latency_high_s)
        return self.layout.assemble(base, measured, remaining, self._past, base.dtype.type)[0]

    @staticmethod
    def _base(observation: Any) -> NDArray[np.floating]:
        base = np.asarray(observation)[None]
        return base if np.issubdtype(base.dtype, np.floating) else base.astype(np.float32)

    def _encode(self, action: Any) -> NDArray[np.float32]:
        """An action as columns: one-hot, or scaled to [-1, 1] by its bounds."""
        space = self.env.action_space
        if isinstance(space, spaces.Discrete):
            return one_hot(np.array([int(action) - int(space.start)]), int(space.n))
        assert isinstance(space, spaces.Box)
        low, high, bounded = _bounds(space)
        values = np.asarray(action, float).ravel()
        scaled = np.clip((values - (low + high) / 2) / ((high - low) / 2), -1, 1)
        return np.where(bounded, scaled, values)[None].astype(np.float32)

    def _widened_space(self, env: gymnasium.Env[Any, Any]) -> spaces.Box:
        own = env.observation_space
        assert isinstance(own, spaces.Box)
        action_high = np.ones(len(self.layout.action))
        action_low = np.zeros(len(self.layout.action))
        if isinstance(env.action_space, spaces.Box):
            action_high = np.where(_bounds(env.action_space)[2], 1.0, np.inf)
            action_low = -action_high
        low, high = self.layout.bounds(
            own.low.astype(float), own.high.astype(float), action_low, action_high
        )
        dtype = own.dtype if own.dtype in (np.float32, np.float64) else np.dtype(np.float32)
        return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype.type)


def _innermost(env: gymnasium.Env[Any, Any], observe_switch: bool) -> MovesByTicks:
    """What moves inside of `env`, if `Concurrent` can do with it what is asked."""
    inner = env.unwrapped
    if not isinstance(inner, MovesByTicks):
        raise ValueError(
            f"Concurrent needs a Gymnasium MuJoCo environment, because it splits the physics "
            f"inside a step; {inner} is not one"
        )
    if _is_concurrent(env):
        raise ValueError("this environment is Concurrent already: wrap it once")
    if observe_switch and not (_observes_unchanged(env) and isinstance(inner, Observes)):
        raise ValueError(
            f"what {env} would observe at the switch is not known: observe_switch needs an "
            "environment with a _get_obs method, and no wrapper inside Concurrent that changes "
            "observations"
        )
    return inner


def _timing(env: MovesByTicks, latency: float | LatencyModel, tick_s: float | None) -> Timing:
    """The environment's own period, in its own ticks or finer ones."""
    own_tick_s = float(env.model.opt.timestep)
    period_s = env.frame_skip * own_tick_s
    if tick_s is None:
        tick_s = own_tick_s
    else:
        check_divides(tick_s, own_tick_s)
    model = as_latency(latency)
    try:
        return Timing(model, period_s=period_s, tick_s=tick_s)
    except DoesNotFit as error:
        finer_s = finer_tick_s(model.values_s, tick_s)
        if finer_s is None:
            raise
        raise ValueError(f"{error}; or take finer physics: tick={finer_s:.6g}") from None


def _observes_unchanged(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether what `env` observes is what its innermost environment observes, as far as we know."""
    keeps = (
        gymnasium.wrappers.TimeLimit,
        gymnasium.wrappers.OrderEnforcing,
        gymnasium.wrappers.PassiveEnvChecker,
        gymnasium.wrappers.RecordEpisodeStatistics,
        gymnasium.ActionWrapper,
        gymnasium.RewardWrapper,
    )
    while isinstance(env, gymnasium.Wrapper):
        if not isinstance(env, keeps):
            return False
        env = env.env
    return True


def _bounds(space: spaces.Box) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Low and high of each element, and whether both mean something (dm_control writes 1e10)."""
    low, high = space.low.astype(float).ravel(), space.high.astype(float).ravel()
    bounded = (np.abs(low) < 1e9) & (np.abs(high) < 1e9)
    return np.where(bounded, low, -1.0), np.where(bounded, high, 1.0), bounded


def _is_concurrent(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether a Concurrent is among the wrappers of `env`."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, Concurrent):
            return True
        env = env.env
    return False


def _units(space: gymnasium.Space[Any], scale: Array) -> dict[str, Any]:
    """What previous actions and vector-to-go are in units of."""
    if not isinstance(space, spaces.Box):
        return {"previous_action": "one-hot", "vector_to_go": scale.tolist()}
    low, high, _ = _bounds(space)
    return {"previous_action": [low.tolist(), high.tolist()], "vector_to_go": scale.tolist()}


def _base_columns(space: gymnasium.Space[Any]) -> tuple[str, ...]:
    """Names for the environment's own columns; none if it does not observe a flat Box."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return tuple(f"observation:{i}" for i in range(space.shape[0]))
    return ()


def _action_columns(space: gymnasium.Space[Any]) -> tuple[str, ...]:
    if isinstance(space, spaces.Discrete):
        return tuple(str(i) for i in range(int(space.n)))
    if isinstance(space, spaces.Box):
        return tuple(str(i) for i in range(int(np.prod(space.shape))))
    raise ValueError(f"Concurrent knows discrete and Box actions, not {space}")
