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

    def __init__(self, env: Any, tick_s: float) -> None:
        self._env = env
        self._own_step = type(env)._step_mujoco_simulation
        self._own_tick_s = float(env.model.opt.timestep)
        self._tick_s = tick_s
        self.substeps = to_ticks(self._own_tick_s, tick_s, "physics timestep")  # in its own tick
        self.servos = position_servos(env.model)
        self.control = np.zeros(env.model.nu)
        self.when_switched: Callable[[], None] | None = None
        self._scratch = mujoco.MjData(env.model)

    def advance(self, ticks: int) -> int:
        if self.substeps == 1:
            self._own_step(self._env, self.control, ticks)
            return ticks
        # Only while time passes are its timesteps finer: its `dt` and `frame_skip` mean what they
        # meant, and a copy of it is a copy of the environment as it was.
        self._env.model.opt.timestep = self._tick_s
        try:
            self._own_step(self._env, self.control, ticks)
        finally:
            self._env.model.opt.timestep = self._own_tick_s
        return ticks

    def switch(self, action: Array) -> None:
        self._env.data.ctrl[:] = self.control = action
        if self.when_switched is not None:
            self.when_switched()

    def hold(self) -> None:
        """Nothing is in force: motors get zero; position actuators the control to stay put."""
        self.control = np.zeros(self._env.model.nu)
        if self.servos.any():
            self.control[self.servos] = self.measure_length()[self.servos]
        self.control = self.target()

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
