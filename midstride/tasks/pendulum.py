"""Pendulum swing-up: DeepMind Control's model, its motor replaced by a position actuator."""

from __future__ import annotations

import numpy as np

from midstride.sim.task import (
    Array,
    Controlled,
    Task,
    Viewpoint,
    line_of_displacements,
    motor_to_position,
    suite_spec,
)

PERIOD_S = 0.05  # of control, unless told otherwise
DISPLACEMENT_RAD = 1.0
UPRIGHT_COSINE = np.cos(np.deg2rad(8))
# The motor's 1 Nm cannot lift the pendulum (5 Nm), so that it must be pumped. A servo with
# velocity feedback would fight the pumping; this one has none beyond the joint's own friction.
# Stiffer than gravity (5 Nm/rad), it holds the pendulum upright where 1 Nm is enough to.
KP, KV = 10.0, 0.0


def make(tick_s: float = 0.005) -> Task:
    spec = suite_spec("pendulum")
    motor_to_position(spec, KP, KV, target_range=None)
    spec.option.timestep = tick_s
    return Task(
        name="pendulum",
        model=spec.compile(),
        controlled=Controlled(
            names=("hinge",),
            qpos=np.array([0]),
            scale=np.array([DISPLACEMENT_RAD]),
            low=np.array([-np.inf]),
            high=np.array([np.inf]),
            wraps=np.array([True]),
        ),
        columns=("pole_cosine", "pole_sine", "pole_velocity"),
        observation_low=np.array([-1, -1, -np.inf]),
        observation_high=np.array([1, 1, np.inf]),
        time_limit_s=20.0,
        reward_per_s=50.0,
        period_s=PERIOD_S,
        initial=initial,
        observe=observe,
        reward=reward,
        displacements=line_of_displacements,
        marker=marker,
        viewpoint=Viewpoint(position=(0, -1.9, 0.6), target=(0, 0, 0.6), fov_deg=45),
    )


def initial(rng: np.random.Generator) -> tuple[Array, Array]:
    """dm_control's distribution: any angle, at rest."""
    return rng.uniform(-np.pi, np.pi, 1), np.zeros(1)


def observe(qpos: Array, qvel: Array) -> Array:
    angle = qpos[..., 0]
    return np.stack([np.cos(angle), np.sin(angle), qvel[..., 0]], axis=-1)


def reward(qpos: Array, qvel: Array) -> Array:
    """dm_control's reward: 1 within 8 degrees of upright, else 0."""
    return (np.cos(qpos[..., 0]) >= UPRIGHT_COSINE).astype(float)


def marker(qpos: Array, target: Array) -> Array:
    return np.array([0.5 * np.sin(target[0]), 0, 0.6 + 0.5 * np.cos(target[0])])
