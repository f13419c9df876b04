"""Balance: a ball on a beam that tilts. It rolls on while the agent thinks, and ever faster.

The beam goes to the angle that it is told, by a servo; the ball rolls without slipping, so its
acceleration along the beam is 5/7 of gravity's (a rolling ball turns, too: 2/5 of its mass more).
"""

from __future__ import annotations

import mujoco
import numpy as np

from midstride.sim.task import (
    Array,
    Controlled,
    Task,
    Viewpoint,
    gaussian_tolerance,
    line_of_displacements,
)

PERIOD_S = 0.1  # of control, unless told otherwise
DISPLACEMENT_RAD = 0.1
TILT_RAD = 0.25  # at most
BEAM_M = 0.5  # half of its length; rims keep the ball on it
MARGIN_M = 0.15  # so far from the middle the reward is 0.1

_GRAVITY = 9.81
_RADIUS_M, _MASS_KG = 0.03, 0.05  # of the ball
_BEAM_KG = 0.3
# A critically damped servo for the beam; the ball at its end bends it by 0.01 rad.
_KP = 20.0
_KV = 2 * np.sqrt(_KP * _BEAM_KG * BEAM_M**2 / 3)


def make(tick_s: float = 0.005) -> Task:
    return Task(
        name="balance",
        model=_model(tick_s),
        controlled=Controlled(
            names=("beam",),
            qpos=np.array([0]),
            scale=np.array([DISPLACEMENT_RAD]),
            low=np.array([-TILT_RAD]),
            high=np.array([TILT_RAD]),
            wraps=np.array([False]),
        ),
        columns=("beam", "ball", "beam_velocity", "ball_velocity"),
        observation_low=np.full(4, -np.inf),
        observation_high=np.full(4, np.inf),
        time_limit_s=5.0,
        reward_per_s=200.0,
        period_s=PERIOD_S,
        initial=initial,
        observe=observe,
        reward=reward,
        displacements=line_of_displacements,
        marker=marker,
        viewpoint=Viewpoint(position=(0, -1.6, 0.5), target=(0, 0, 0.35), fov_deg=42),
    )


def _model(tick_s: float) -> mujoco.MjModel:
    rims = "".join(
        f'<geom type="box" pos="{x} 0 .02" size=".01 .03 .03" mass="0" rgba=".35 .4 .5 1"/>'
        for x in (-BEAM_M, BEAM_M)
    )
    most = BEAM_M - _RADIUS_M - 0.01
    xml = f"""
    <mujoco>
      <option timestep="{tick_s}" integrator="implicitfast" gravity="0 0 {-_GRAVITY}">
        <flag contact="disable"/>
      </option>
      <worldbody>
        <geom type="plane" size="2 2 .1" rgba=".2 .3 .4 1"/>
        <geom type="capsule" fromto="0 0 0 0 0 .33" size=".015" rgba=".35 .4 .5 1"/>
        <body name="beam" pos="0 0 .35">
          <joint name="beam" type="hinge" axis="0 -1 0"/>
          <geom type="box" size="{BEAM_M} .03 .01" mass="{_BEAM_KG}" rgba=".25 .45 .75 1"/>
          {rims}
          <body name="ball" pos="0 0 {_RADIUS_M + 0.01}">
            <joint name="ball" type="slide" axis="1 0 0" range="{-most} {most}" limited="true"
                   armature="{0.4 * _MASS_KG}"/>
            <geom type="sphere" size="{_RADIUS_M}" mass="{_MASS_KG}" rgba=".95 .65 .15 1"/>
          </body>
        </body>
      </worldbody>
      <actuator><position joint="beam" kp="{_KP}" kv="{_KV}"/></actuator>
    </mujoco>"""
    return mujoco.MjSpec.from_string(xml).compile()


def initial(rng: np.random.Generator) -> tuple[Array, Array]:
    """The beam level and at rest, the ball rolling somewhere on it."""
    return np.array([0, rng.uniform(-0.3, 0.3)]), np.array([0, rng.uniform(-0.4, 0.4)])


def observe(qpos: Array, qvel: Array) -> Array:
    return np.concatenate([qpos, qvel], axis=-1)


def reward(qpos: Array, qvel: Array) -> Array:
    """1 in the middle, falling smoothly with the distance."""
    return gaussian_tolerance(qpos[..., 1], margin=MARGIN_M)


def marker(qpos: Array, target: Array) -> Array:
    """The end of the beam, where it is told to be."""
    return np.array([BEAM_M * np.cos(target[0]), 0, 0.35 + BEAM_M * np.sin(target[0])])
