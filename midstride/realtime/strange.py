"""Another arm than the one that policies were trained on: what a robot is to a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from numpy.typing import NDArray

from midstride.latency import LatencyModel, NextLatencies, Rounding
from midstride.measure.evaluate import EVALUATION_SCENE_SEED
from midstride.tasks.grasp.model import JOINTS
from midstride.tasks.grasp.objects import Design
from midstride.tasks.grasp.settings import GraspSettings, ObjectSet

_SCENES = 128


@dataclass(frozen=True)
class Strange:
    """How a body differs from that of training; factors of what the model has, unless said.

    camera_m, light, colour: how much each grasp's camera pose, light and colours are away from
        those of training at most, as the jitters of `GraspSettings`
    jitter_s: how much earlier or later than the trace every decision is at most
    """

    objects: ObjectSet = "household"
    object_mass: float = 1.5
    arm_mass: float = 1.1
    friction: float = 0.8
    gain: float = 0.85  # of the servos: torque by error
    damping: float = 0.9  # torque by speed
    camera_m: float = 0.01
    light: float = 0.3
    colour: float = 0.1
    jitter_s: float = 0.05

    def settings(self, trained: GraspSettings) -> GraspSettings:
        """What the robot sees and what lies in its bin, for a policy that was trained so."""
        return replace(
            trained,
            object_set=self.objects,
            scenes=_SCENES,
            scene_seed=EVALUATION_SCENE_SEED,
            camera_jitter=self.camera_m,
            light_jitter=self.light,
            colour_jitter=self.colour,
        )

    def designs(self, designs: tuple[Design, ...]) -> tuple[Design, ...]:
        """The objects with other masses."""
        k = self.object_mass
        return tuple(replace(design, mass=k * design.mass) for design in designs)

    def change(self, model: mujoco.MjModel) -> None:
        """Make an arm's model that of this body; its objects keep their masses (`designs`)."""
        arm = np.array([name.startswith(("link", "hand", "finger")) for name in _bodies(model)])
        model.body_mass[arm] *= self.arm_mass
        model.body_inertia[arm] *= self.arm_mass
        model.geom_friction[:, 0] *= self.friction
        model.actuator_gainprm[:JOINTS, 0] *= self.gain
        model.actuator_biasprm[:JOINTS, 1] *= self.gain
        model.actuator_biasprm[:JOINTS, 2] *= self.damping
        mujoco.mj_setConst(model, mujoco.MjData(model))

    def latency(self, trace: LatencyModel) -> LatencyModel:
        """The latencies of this robot, whose thoughts take what the trace says, and its jitter."""
        return Trembling(trace, self.jitter_s)


def _bodies(model: mujoco.MjModel) -> list[str]:
    return [model.body(i).name for i in range(model.nbody)]


@dataclass(frozen=True)
class Trembling:
    """A latency, each earlier or later by up to `jitter_s`, evenly drawn; never below 0."""

    trace: LatencyModel
    jitter_s: float
    rounding: Rounding = "nearest"

    @property
    def values_s(self) -> NDArray[np.float64]:
        known_s = self.trace.values_s
        ends_s = np.array([known_s.min() - self.jitter_s, known_s.max() + self.jitter_s])
        return np.maximum(ends_s, 0.0)

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        following: Callable[[int], NDArray[np.float64]] = self.trace.episode(rng)
        return lambda n: np.maximum(following(n) + self.jitter_s * rng.uniform(-1, 1, n), 0.0)
