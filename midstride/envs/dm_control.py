"""DeepMind Control's tasks as Gymnasium environments, concurrent ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.envs.concurrent import Concurrent
from midstride.extras import needed_by
from midstride.latency import LatencyModel
from midstride.sim.camera import Image
from midstride.sim.follow import Follower

Array = NDArray[np.float64]
Info = dict[str, Any]


def from_dm_control(
    domain: str,
    task: str,
    latency: float | LatencyModel = 0.0,
    knowledge: Iterable[str] = (),
    stack_observations: int = 0,
    stack_actions: int = 0,
    render_mode: str | None = None,
    tick: float | None = None,
    observe_switch: bool = False,
    **others: Any,
) -> Concurrent:
    """Any task of the DeepMind Control suite as a concurrent Gymnasium environment.

    Its own step is the task's control timestep; the options are those of `Concurrent`, all of them.
    """
    return Concurrent(
        DMControlEnv(domain, task, render_mode),
        latency=latency,
        knowledge=knowledge,
        stack_observations=stack_observations,
        stack_actions=stack_actions,
        tick=tick,
        observe_switch=observe_switch,
        **others,
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
        self._follower = Follower(self.model)
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
        return self._follower.picture(self.data)

    @property
    def dt(self) -> float:
        """The period in seconds, as Gymnasium's MuJoCo environments call it."""
        return self.model.opt.timestep * self.frame_skip

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
