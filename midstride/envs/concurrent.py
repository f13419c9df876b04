"""Concurrent control for environments that others wrote: Gymnasium's and DeepMind Control's.

`Concurrent` splits the physics inside a step at the switch and touches nothing else: reward,
observation, termination and resets are the environment's own code.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, cast

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.envs.mujoco import MujocoEnv
from numpy.typing import NDArray

from midstride.extras import needed_by
from midstride.knowledge import (
    Layout,
    Past,
    check_features,
    one_hot,
    selection_time,
    vector_to_go,
)
from midstride.sim.camera import Camera, Image
from midstride.sim.task import Viewpoint
from midstride.timing import LatencyModel, Timing, as_latency

Array = NDArray[np.float64]
Info = dict[str, Any]


class Concurrent(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Any Gymnasium MuJoCo environment, moving while the agent thinks.

    env: an environment whose `unwrapped` is a `gymnasium.envs.mujoco.MujocoEnv`
    latency: seconds from an observation to the switch to the action chosen on it, at most the
        environment's own `dt`, which is the period; or a latency model
    knowledge: any of previous_action, selection_time, vector_to_go (position actuators only)
    stack_observations, stack_actions: how many previous ones (0 to 4) are observed too

    Without knowledge or stacking the observation is the environment's own, unchanged; with them
    it is a flat Box that starts with it. After a reset, until the first switch, motors get zero
    control and position actuators hold. `info` gains latency_s, period_s, observation_at_switch
    (unless a wrapper inside may change the observation), and the reward split at the switch: an
    environment pays once per step, so the split is in proportion to time. Vector-to-go is control
    minus actuator length, not wrapped: these actuators are told a place, not a displacement.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        latency: float | LatencyModel = 0.0,
        knowledge: Iterable[str] = (),
        stack_observations: int = 0,
        stack_actions: int = 0,
    ) -> None:
        knowledge = check_features(knowledge)
        self._arguments = (latency, knowledge, stack_observations, stack_actions)
        gymnasium.utils.RecordConstructorArgs.__init__(
            self,
            latency=latency,
            knowledge=knowledge,
            stack_observations=stack_observations,
            stack_actions=stack_actions,
        )
        gymnasium.Wrapper.__init__(self, env)
        inner = env.unwrapped
        if not isinstance(inner, (MujocoEnv, DMControlEnv)):
            raise ValueError(
                f"Concurrent needs a Gymnasium MuJoCo environment, because it splits the physics "
                f"inside a step; {inner} is not one"
            )
        if _is_concurrent(env):
            raise ValueError("this environment is Concurrent already: wrap it once")
        self._inner = cast(Any, inner)  # its own methods are called, and replaced during a step
        tick_s = float(inner.model.opt.timestep)
        self.timing = Timing(as_latency(latency), period_s=inner.frame_skip * tick_s, tick_s=tick_s)
        self._servos = _position_servos(inner.model)
        self.layout = Layout(
            base=_base_columns(env.observation_space),
            action=_action_columns(env.action_space),
            controlled=_actuator_names(inner.model) if self._servos.all() else None,
            features=knowledge,
            stack_observations=stack_observations,
            stack_actions=stack_actions,
        )
        if not self.layout.is_plain:
            if not self.layout.base:
                raise ValueError(
                    "knowledge and stacking need an environment that observes a flat Box, not "
                    f"{env.observation_space}"
                )
            self.observation_space = self._widened_space(env)
        self._can_observe_at_switch = _observes_unchanged(env) and callable(
            getattr(inner, "_get_obs", None)
        )
        self._scale = _action_scale(inner.model)
        self._scratch = mujoco.MjData(inner.model)
        self._rng = np.random.default_rng()
        self._draw: Any = None  # of the episode: None before the first reset
        self._past: Past
        self._last: Any = None
        self._latency_s = 0.0
        self._ticks_to_switch = 0
        self._at_switch: Any = None
        self._control_in_flight = np.zeros(inner.model.nu)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or pickled environment starts afresh, as Gymnasium's own do."""
        return Concurrent, (self.env, *self._arguments)

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
        self._control_in_flight = self._holding_control()
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
        (switch_ticks,), (period_ticks,) = self._draw(1)
        self._ticks_to_switch, self._at_switch = int(switch_ticks), None
        # Only while it steps does the environment move through us; otherwise it is untouched.
        self._inner._step_mujoco_simulation = self._split_step
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        finally:
            del self._inner._step_mujoco_simulation
        self._latency_s = int(switch_ticks) * self.timing.tick_s
        if not self.layout.is_plain:
            base, encoded = self._base(self._last), self._encode(action)
            self._past.push(base, encoded)
        self._last = observation
        before = float(reward) * (int(switch_ticks) / int(period_ticks))
        info = {
            **info,
            "reward_before_switch": before,
            "reward_after_switch": float(reward) - before,
            "latency_s": self._latency_s,
            "period_s": int(period_ticks) * self.timing.tick_s,
        }
        if self._at_switch is not None and self._can_observe_at_switch:
            info["observation_at_switch"] = self._augment(*self._at_switch)
        return self._augment(observation), reward, terminated, truncated, info

    def _split_step(self, control: Array, ticks: int) -> None:
        """What the environment calls to move: the old control up to the switch, then its own."""
        own_step = type(self._inner)._step_mujoco_simulation
        before = min(self._ticks_to_switch, ticks)
        if before:
            own_step(self._inner, self._control_in_flight, before)
            self._ticks_to_switch -= before
        if self._ticks_to_switch:
            return
        self._inner.data.ctrl[:] = self._control_in_flight = np.array(control, float)
        if self._at_switch is None:
            self._at_switch = self._observe_at_switch(), self._measure_length()
        if ticks > before:
            own_step(self._inner, control, ticks - before)

    def _observe_at_switch(self) -> Any:
        """The environment's observation now, taken without a trace.

        Looking must not draw from the environment's generator: observations may be noisy.
        """
        if not self._can_observe_at_switch:
            return None
        random = self._inner.np_random.bit_generator.state
        observation = self._inner._get_obs()
        self._inner.np_random.bit_generator.state = random
        return observation

    def _measure_length(self) -> Array:
        """Where each actuator is *now*: MuJoCo's own field is one tick old after a step."""
        model, data = self._inner.model, self._scratch
        data.qpos[:] = self._inner.data.qpos
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_tendon(model, data)
        mujoco.mj_transmission(model, data)
        return data.actuator_length.copy()

    def _holding_control(self) -> Array:
        """Zero for motors; for position actuators the control at which they stay put."""
        model = self._inner.model
        hold = np.where(self._servos, self._measure_length(), 0.0)
        limited = model.actuator_ctrllimited.astype(bool)
        low, high = model.actuator_ctrlrange.T
        return np.where(limited, np.clip(hold, low, high), hold)

    def _augment(self, observation: Any, actuator_length: Array | None = None) -> Any:
        if self.layout.is_plain:
            return observation
        base = self._base(observation)
        remaining = None
        if "vector_to_go" in self.layout.features:
            if actuator_length is None:
                actuator_length = self._measure_length()
            # Not wrapped: these servos are told a place, and unwind to it the long way if need be.
            no_wrap = np.zeros(self._inner.model.nu, bool)
            remaining = vector_to_go(
                self._control_in_flight[None], actuator_length[None], self._scale, no_wrap
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


# --- DeepMind Control ----------------------------------------------------------------------------


def from_dm_control(
    domain: str,
    task: str,
    latency: float | LatencyModel = 0.0,
    knowledge: Iterable[str] = (),
    stack_observations: int = 0,
    stack_actions: int = 0,
    render_mode: str | None = None,
) -> Concurrent:
    """Any task of the DeepMind Control suite as a concurrent Gymnasium environment.

    The period is the task's own control timestep; the other options are those of `Concurrent`.
    """
    return Concurrent(
        DMControlEnv(domain, task, render_mode),
        latency=latency,
        knowledge=knowledge,
        stack_observations=stack_observations,
        stack_actions=stack_actions,
    )


class DMControlEnv(gymnasium.Env[Array, Any], gymnasium.utils.EzPickle):
    """A DeepMind Control task as a Gymnasium environment; observations flattened in its order.

    Its seed is given to the task anew at `reset(seed=...)`; rendering needs no OpenGL.
    """

    def __init__(self, domain: str, task: str, render_mode: str | None = None) -> None:
        # Imported late: it takes seconds, and only these environments need it. It looks for a
        # display and warns if there is none; we render without one.
        with warnings.catch_warnings(), needed_by("a DeepMind Control task"):
            warnings.simplefilter("ignore")
            from dm_control import suite

        gymnasium.utils.EzPickle.__init__(self, domain, task, render_mode)
        known = {f"{d}/{t}" for d, t in suite.ALL_TASKS}
        if f"{domain}/{task}" not in known:
            of_domain = sorted(t for d, t in suite.ALL_TASKS if d == domain)
            choices = of_domain or sorted({d for d, _ in suite.ALL_TASKS})
            kind = f"{domain} has the tasks" if of_domain else "the domains are"
            raise ValueError(
                f"unknown DeepMind Control task {domain}/{task}: {kind} {', '.join(choices)}"
            )
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        self.dm_env = suite.load(domain, task)
        self._over = True
        self.physics = self.dm_env.physics
        self.model, self.data = self.physics.model.ptr, self.physics.data.ptr
        period_s = self.dm_env.control_timestep()
        self.frame_skip = round(period_s / self.physics.timestep())
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / period_s)}

        action = self.dm_env.action_spec()
        self.action_space = spaces.Box(
            action.minimum.astype(np.float32), action.maximum.astype(np.float32), dtype=np.float32
        )
        columns = _flatten(
            {k: np.zeros(v.shape) for k, v in self.dm_env.observation_spec().items()}
        )
        self.observation_space = spaces.Box(-np.inf, np.inf, columns.shape, np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, Info]:
        super().reset(seed=seed)
        if seed is not None:
            self.dm_env.task.random.seed(seed)
        self._over = False
        return _flatten(self.dm_env.reset().observation), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, Info]:
        action = np.asarray(action, float)
        if action.shape != self.action_space.shape:
            raise ValueError(f"an action must be {self.action_space}, got shape {action.shape}")
        if self._over:
            raise RuntimeError("the episode is over: reset it before the next step")
        # dm_control sets the control, then steps its physics: we come between, during a step only.
        self.physics.step = self._step_physics
        try:
            step = self.dm_env.step(action)
        finally:
            del self.physics.step
        self._over = step.last()
        terminated = step.last() and step.discount == 0
        truncated = step.last() and not terminated
        return _flatten(step.observation), float(step.reward), terminated, truncated, {}

    def render(self) -> Image | None:
        if self.render_mode is None:
            return None
        mujoco.mj_kinematics(self.model, self.data)
        centre, extent = self.model.stat.center, self.model.stat.extent
        root = self.data.subtree_com[0] if self.model.nbody > 1 else centre
        x, y, z = (float(v) for v in root)
        distance = 1.6 * float(extent)
        viewpoint = Viewpoint((x, y - distance, z + 0.4 * distance), (x, y, z), 45)
        return Camera(viewpoint).of_data(self.model, self.data)

    def _step_physics(self, nstep: int = 1) -> None:
        self._step_mujoco_simulation(self.data.ctrl.copy(), nstep)

    def _step_mujoco_simulation(self, control: Array, ticks: int) -> None:
        """What `Concurrent` replaces, as in Gymnasium's own MuJoCo environments."""
        self.data.ctrl[:] = control
        type(self.physics).step(self.physics, ticks)

    def _get_obs(self) -> Array:
        return _flatten(self.dm_env.task.get_observation(self.physics))


def _flatten(observation: Any) -> Array:
    return np.concatenate([np.ravel(value) for value in observation.values()]).astype(float)


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


# --- What a model's actuators are ----------------------------------------------------------------


def _position_servos(model: mujoco.MjModel) -> NDArray[np.bool_]:
    """Which actuators pull their joint or tendon to the control, as a spring."""
    gain = model.actuator_gainprm[:, 0]
    is_servo = (
        (model.actuator_gaintype == mujoco.mjtGain.mjGAIN_FIXED)
        & (model.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE)
        & (model.actuator_biasprm[:, 0] == 0)
        & (model.actuator_biasprm[:, 1] == -gain)
        & (gain > 0)
        & (model.actuator_dyntype == mujoco.mjtDyn.mjDYN_NONE)
    )
    return np.asarray(is_servo)


def _action_scale(model: mujoco.MjModel) -> Array:
    """Half the control range of each actuator; 1 where it has none."""
    low, high = model.actuator_ctrlrange.T
    return np.where(model.actuator_ctrllimited.astype(bool), (high - low) / 2, 1.0)


def _actuator_names(model: mujoco.MjModel) -> tuple[str, ...]:
    return tuple(model.actuator(i).name or str(i) for i in range(model.nu))


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
