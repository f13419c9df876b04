"""Cartpole swing-up: DeepMind Control's model, its motor replaced by a position actuator."""

from __future__ import annotations

import numpy as np

from midstride.sim.task import (
    Array,
    Controlled,
    Task,
    Viewpoint,
    gaussian_tolerance,
    line_of_displacements,
    motor_to_position,
    suite_spec,
)

PERIOD_S = 0.05  # of control, unless told otherwise
RAIL_M = 1.8
DISPLACEMENT_M = 0.2
# A critically damped servo for the whole mass of 1.1 kg; it saturates at the motor's 10 N from
# 0.1 m on, so that swinging up remains as hard as with the motor.
KP, KV = 100.0, 2 * np.sqrt(100.0 * 1.1)


def make(tick_s: float = 0.005) -> Task:
    spec = suite_spec("cartpole")
    motor_to_position(spec, KP, KV, target_range=(-RAIL_M, RAIL_M))
    spec.option.timestep = tick_s
    return Task(
        name="cartpole",
        model=spec.compile(),
        controlled=Controlled(
            names=("cart",),
            qpos=np.array([0]),
            scale=np.array([DISPLACEMENT_M]),
            low=np.array([-RAIL_M]),
            high=np.array([RAIL_M]),
            wraps=np.array([False]),
        ),
        columns=("cart_position", "pole_cosine", "pole_sine", "cart_velocity", "pole_velocity"),
        observation_low=np.array([-np.inf, -1, -1, -np.inf, -np.inf]),
        observation_high=np.array([np.inf, 1, 1, np.inf, np.inf]),
        time_limit_s=10.0,
        reward_per_s=100.0,
        period_s=PERIOD_S,
        initial=initial,
        observe=observe,
        reward=reward,
        displacements=line_of_displacements,
        marker=marker,
        viewpoint=Viewpoint(position=(0, -4.6, 1.0), target=(0, 0, 1.0), fov_deg=45),
    )


def initial(rng: np.random.Generator) -> tuple[Array, Array]:
    """dm_control's distribution: the cart near the middle, the pole hanging, almost at rest."""
    noise = 0.01 * rng.standard_normal(4)
    return np.array([0, np.pi]) + noise[:2], noise[2:]


def observe(qpos: Array, qvel: Array) -> Array:
    angle = qpos[..., 1]
    return np.stack(
        [qpos[..., 0], np.cos(angle), np.sin(angle), qvel[..., 0], qvel[..., 1]], axis=-1
    )


def reward(qpos: Array, qvel: Array) -> Array:
    """dm_control's smooth reward at zero motor control.

    Its `small_control` term scores the motor's command. A position actuator is commanded a
    place, not an effort, so the term stays at its value for no effort, 1.
    """
    upright = (np.cos(qpos[..., 1]) + 1) / 2
    centred = (1 + gaussian_tolerance(qpos[..., 0], margin=2)) / 2
    slow = (1 + gaussian_tolerance(qvel[..., 1], margin=5)) / 2
    return upright * slow * centred


def marker(qpos: Array, target: Array) -> Array:
    return np.array([target[0], 0, 1.0])
