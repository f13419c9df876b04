"""A point in the plane that goes where it is told, first order: the paper's illustration.

The point has (almost) no mass and moves through a viscous medium, drawn to its target by a spring:
its distance to the target decays exponentially, x(t) = target + (x(0) - target) exp(-t / tau), in
both dimensions. The closed form holds exactly at every tick, so that every position and
vector-to-go can be computed by hand.
"""

from __future__ import annotations

import mujoco
import numpy as np

from midstride.sim.task import Array, Controlled, Task, Viewpoint, gaussian_tolerance

PERIOD_S = 0.1  # of control, unless told otherwise
TAU_S = 0.1
DISPLACEMENT_M = 0.3
ARENA_M = 1.0
GOAL_RADIUS_M = 0.15
_HEIGHT_M = 0.03
# Inertia fades by a factor of MASS / (tick * damping), below 1e-6, per tick: the closed form holds
# to about 1e-8 m. Less mass would accelerate past what MuJoCo takes for a stable simulation.
_MASS_KG = 3e-9


def make(tick_s: float = 0.005) -> Task:
    return Task(
        name="pointmass",
        model=_model(tick_s),
        controlled=Controlled(
            names=("x", "y"),
            qpos=np.array([0, 1]),
            scale=np.full(2, DISPLACEMENT_M),
            low=np.full(2, -ARENA_M),
            high=np.full(2, ARENA_M),
            wraps=np.array([False, False]),
        ),
        columns=("x", "y", "goal_x", "goal_y"),
        observation_low=np.full(4, -np.inf),
        observation_high=np.full(4, np.inf),
        time_limit_s=5.0,
        reward_per_s=200.0,
        period_s=PERIOD_S,
        initial=initial,
        observe=observe,
        reward=reward,
        displacements=displacements,
        marker=marker,
        viewpoint=Viewpoint(position=(0, -0.6, 3.2), target=(0, 0, 0), fov_deg=42),
    )


def _model(tick_s: float) -> mujoco.MjModel:
    # An implicit step moves a massless point by tick * stiffness / damping of its way; with this
    # stiffness that is exactly the share that the exponential covers in a tick.
    stiffness = -np.expm1(-tick_s / TAU_S) / tick_s
    joints = '<joint type="slide" axis="1 0 0" {0}/><joint type="slide" axis="0 1 0" {0}/>'
    a = ARENA_M
    walls = "".join(
        f'<geom type="box" pos="{x} {y} .04" size="{sx} {sy} .04" rgba=".35 .4 .5 1"/>'
        for x, y, sx, sy in [
            (a + 0.06, 0, 0.02, a + 0.08),
            (-a - 0.06, 0, 0.02, a + 0.08),
            (0, a + 0.06, a + 0.08, 0.02),
            (0, -a - 0.06, a + 0.08, 0.02),
        ]
    )
    xml = f"""
    <mujoco>
      <option timestep="{tick_s}" integrator="implicitfast" gravity="0 0 0">
        <flag contact="disable"/>
      </option>
      <worldbody>
        <geom type="plane" size="2 2 .1" rgba=".2 .3 .4 1"/>
        {walls}
        <body pos="0 0 {_HEIGHT_M}">
          {joints.format('damping="1"')}
          <geom type="sphere" size=".05" mass="{_MASS_KG}" rgba=".9 .6 .2 1"/>
        </body>
        <body pos="0 0 .005">
          {joints.format('damping="1"')}
          <geom type="cylinder" size="{GOAL_RADIUS_M} .004" mass="1" rgba=".3 .75 .45 1"/>
        </body>
      </worldbody>
    </mujoco>"""
    spec = mujoco.MjSpec.from_string(xml)
    for i, joint in enumerate(spec.joints):
        joint.name = ("x", "y", "goal_x", "goal_y")[i]
    for name in ("x", "y"):
        actuator = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        actuator.set_to_position(kp=stiffness, kv=0)
    return spec.compile()


def initial(rng: np.random.Generator) -> tuple[Array, Array]:
    """Point and goal anywhere in the arena, at rest."""
    return rng.uniform(-0.9 * ARENA_M, 0.9 * ARENA_M, 4), np.zeros(4)


def observe(qpos: Array, qvel: Array) -> Array:
    return qpos.copy()


def reward(qpos: Array, qvel: Array) -> Array:
    """1 on the goal, falling smoothly with the distance; 0.1 at three goal radii."""
    distance = np.hypot(qpos[..., 0] - qpos[..., 2], qpos[..., 1] - qpos[..., 3])
    return gaussian_tolerance(distance, margin=3 * GOAL_RADIUS_M)


def displacements(count: int) -> Array:
    """Stay, and count - 1 directions round the circle."""
    angles = np.arange(count - 1) * (2 * np.pi / (count - 1))
    return np.vstack([np.zeros((1, 2)), np.stack([np.cos(angles), np.sin(angles)], axis=1)])


def marker(qpos: Array, target: Array) -> Array:
    return np.array([target[0], target[1], _HEIGHT_M])
