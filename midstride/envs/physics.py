"""The physics of a wrapped environment as a plant, and what its actuators are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import mujoco
import numpy as np
from numpy.typing import NDArray

from midstride.seconds import to_ticks

Array = NDArray[np.float64]


@runtime_checkable
class MovesByTicks(Protocol):
    """What an environment must be: MuJoCo, and moved by one method that we can stand in for.

    Gymnasium's `MujocoEnv` is one (its `do_simulation` calls this method), our `DMControlEnv` too.
    """

    model: mujoco.MjModel
    data: mujoco.MjData
    frame_skip: int

    def _step_mujoco_simulation(self, control: Array, ticks: int, /) -> None: ...


class Physics:
    """The plant: an environment's physics, and the control that its actuators follow."""

    def __init__(self, env: Any, tick_s: float, hold: Any = None) -> None:
        """hold: the control before the first decision arrives (default: zero; servos stay put)"""
        self._env = env
        self._own_step = own = type(env)._step_mujoco_simulation
        self._own_tick_s = float(env.model.opt.timestep)
        self._tick_s = tick_s
        self.substeps = to_ticks(self._own_tick_s, tick_s, "physics timestep")  # in its own tick
        self.servos = position_servos(env.model)
        self.scale = action_scale(env.model)
        self.names = actuator_names(env.model)
        self._hold = None if hold is None else _as_control(hold, env.model)
        self.control = np.zeros(env.model.nu)
        self.left = 0  # ticks that the environment has asked for and not got
        self._when_switched: Callable[[], None] | None = None
        # Gymnasium computes forces after it has moved. Nobody looks at them before the end.
        self._splits = own.__module__ == "gymnasium.envs.mujoco.mujoco_env" and self.substeps == 1
        self._scratch: mujoco.MjData | None = None
        self.warnings = _Warnings(env.data)

    def tell_switches(self, when_switched: Callable[[], None]) -> None:
        """Call this at every switch, when all that the environment observes is up to date."""
        self._when_switched, self._splits = when_switched, False

    def advance(self, ticks: int) -> int:
        self.left -= ticks
        if self._splits:
            env = self._env
            model, data = env.model, env.data
            data.ctrl[:] = self.control
            mujoco.mj_step(model, data, ticks)
            if not self.left:
                mujoco.mj_rnePostConstraint(model, data)
        elif self.substeps == 1:
            self._own_step(self._env, self.control, ticks)
        else:
            # Only while time passes are its timesteps finer: its `dt` and `frame_skip` mean what
            # they meant, and a copy of it is a copy of the environment as it was.
            self._env.model.opt.timestep = self._tick_s
            try:
                self._own_step(self._env, self.control, ticks)
            finally:
                self._env.model.opt.timestep = self._own_tick_s
        return ticks

    def switch(self, decision: tuple[Array, Any]) -> None:
        self.control = decision[0]
        if self._when_switched is not None:
            self._env.data.ctrl[:] = self.control
            self._when_switched()
        elif not self.left:  # otherwise it is set when time passes, at once
            self._env.data.ctrl[:] = self.control

    def hold(self) -> None:
        """An episode has begun, and nothing is in force."""
        self.warnings.forget(self._env.data)
        self.rest()

    def rest(self) -> None:
        """Nothing is in force: motors get zero; position actuators the control to stay put."""
        if self._hold is not None:
            self.control = self._hold
            return
        self.control = np.zeros(self._env.model.nu)
        if self.servos.any():
            self.control[self.servos] = self.measure_length()[self.servos]
            self.control = self.target()

    def report(self) -> None:
        """An error: MuJoCo has given up on the physics since the reset."""
        raise RuntimeError(
            f"the physics of {self._env} became unstable: MuJoCo warns of {self.warnings.words()}; "
            "actions that are too large or a timestep that is too long do this (see tick=)"
        )

    def target(self) -> Array:
        """The control as the actuators take it: MuJoCo keeps it within the control range."""
        model = self._env.model
        if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL:
            return self.control
        limited = model.actuator_ctrllimited.astype(bool)
        low, high = model.actuator_ctrlrange.T
        return np.where(limited, np.clip(self.control, low, high), self.control)

    def measure_length(self) -> Array:
        """Where each actuator is *now*: MuJoCo's own field is one tick old after a step."""
        if self._scratch is None:
            self._scratch = mujoco.MjData(self._env.model)
        model, data = self._env.model, self._scratch
        data.qpos[:] = self._env.data.qpos
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_tendon(model, data)
        mujoco.mj_transmission(model, data)
        return data.actuator_length.copy()


def position_servos(model: mujoco.MjModel) -> NDArray[np.bool_]:
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


def action_scale(model: mujoco.MjModel) -> Array:
    """Half the control range of each actuator; 1 where it has none."""
    low, high = model.actuator_ctrlrange.T
    return np.where(model.actuator_ctrllimited.astype(bool), (high - low) / 2, 1.0)


def actuator_names(model: mujoco.MjModel) -> tuple[str, ...]:
    return tuple(model.actuator(i).name or str(i) for i in range(model.nu))


def _as_control(hold: Any, model: mujoco.MjModel) -> Array:
    control = np.array(hold, float)
    if control.shape != (model.nu,) or not np.isfinite(control).all():
        raise ValueError(
            f"hold must be the control of each of the {model.nu} actuators of this MuJoCo "
            f"environment, got {hold!r}"
        )
    return control


_UNSTABLE = {
    "positions": int(mujoco.mjtWarning.mjWARN_BADQPOS),
    "velocities": int(mujoco.mjtWarning.mjWARN_BADQVEL),
    "accelerations": int(mujoco.mjtWarning.mjWARN_BADQACC),
    "controls": int(mujoco.mjtWarning.mjWARN_BADCTRL),
}


class _Warnings:
    """What MuJoCo says that cannot be: it resets the physics and goes on as if nothing were."""

    def __init__(self, data: mujoco.MjData) -> None:
        first, last = min(_UNSTABLE.values()), max(_UNSTABLE.values())
        self._first = first
        self._where = slice(first, last + 1)
        self._data: mujoco.MjData = None
        self.forget(data)

    def forget(self, data: mujoco.MjData) -> None:
        """What was said until now is old."""
        if data is not self._data:
            self._data, self._counts = data, data.warning.number[self._where]  # its own memory
        self._quiet = self._counts.tobytes()

    def are_new(self) -> bool:
        """Whether it has said something since this was made."""
        return self._counts.tobytes() != self._quiet  # the cheapest way to look

    def words(self) -> str:
        """What it has said since this was made."""
        more = self._counts > np.frombuffer(self._quiet, self._counts.dtype)
        names = [name for name, at in _UNSTABLE.items() if more[at - self._first]]
        return f"impossible {' and '.join(names)}"
