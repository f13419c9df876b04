"""Forward and inverse kinematics of the arm, for many arms at once, in NumPy.

A pose is (x, y, z, yaw) of the point between the fingertips, the hand pointing straight down.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from midstride.knowledge import wrap_angle
from midstride.tasks.grasp.model import (
    FINGERTIP_M,
    FLANGE_M,
    HAND_TURN,
    HOME,
    JOINT_HIGH,
    JOINT_LOW,
    JOINT_SPEED,
    JOINTS,
    POSITIONS,
    TURNS,
)

Array = NDArray[np.floating]

_DAMPING = 1e-4  # of the least squares
_TO_HOME = 0.02  # share of the way to the home posture per update, where the task leaves it free


def _turn_about_x(angle: float) -> Array:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1, 0, 0], [0, c, -s], [0, s, c]])


_FRAMES = np.stack([_turn_about_x(angle) for angle in TURNS])
_HAND = np.array(
    [
        [np.cos(HAND_TURN), -np.sin(HAND_TURN), 0],
        [np.sin(HAND_TURN), np.cos(HAND_TURN), 0],
        [0, 0, 1],
    ]
)


def forward(joints: Array) -> tuple[Array, Array, Array, Array]:
    """Of joints (n, 7): fingertip (n, 3), hand rotation (n, 3, 3), and the Jacobian's parts.

    The parts are each joint's axis and a point on it, (n, 7, 3) both.
    """
    n = len(joints)
    cos, sin = np.cos(joints), np.sin(joints)
    rotation = np.broadcast_to(np.eye(3), (n, 3, 3))
    point = np.zeros((n, 3))
    axes, points = np.empty((n, JOINTS, 3)), np.empty((n, JOINTS, 3))
    for i in range(JOINTS):
        point = point + rotation @ POSITIONS[i]
        frame = rotation @ _FRAMES[i]
        c, s = cos[:, i, None], sin[:, i, None]
        rotation = np.stack(
            [frame[..., 0] * c + frame[..., 1] * s, frame[..., 1] * c - frame[..., 0] * s,
             frame[..., 2]], axis=-1,
        )  # fmt: skip
        axes[:, i], points[:, i] = rotation[..., 2], point
    tip = point + rotation[..., 2] * (FLANGE_M + FINGERTIP_M)
    return tip, rotation @ _HAND, axes, points


def pose(joints: Array) -> Array:
    """(x, y, z, yaw) of joints (n, 7)."""
    tip, rotation, _, _ = forward(joints)
    return np.concatenate([tip, np.arctan2(rotation[:, 1, 0], rotation[:, 0, 0])[:, None]], axis=1)


def track(joints: Array, wanted: Array, dt_s: Array) -> Array:
    """Joints (n, 7) one update nearer to poses (n, 4): damped least squares, within limits.

    No joint moves faster than its limit over dt_s (n,).
    """
    tip, rotation, axes, points = forward(joints)
    jacobian = np.concatenate([_cross(axes, tip[:, None] - points), axes], axis=2)  # (n, 7, 6)
    error = np.concatenate([wanted[:, :3] - tip, _turn_to(rotation, wanted[:, 3])], axis=1)
    posture = _TO_HOME * (HOME - joints)
    posture[:, -1] = 0  # the last joint is the yaw
    left = error - (posture[:, None] @ jacobian)[:, 0]
    squared = np.swapaxes(jacobian, 1, 2) @ jacobian + _DAMPING * np.eye(6)
    change = (jacobian @ np.linalg.solve(squared, left[..., None]))[..., 0] + posture
    most = JOINT_SPEED * dt_s[:, None]
    return np.clip(joints + np.clip(change, -most, most), JOINT_LOW, JOINT_HIGH)


def joints_at(wanted: Array) -> Array:
    """Joints (n, 7) whose poses are `wanted` (n, 4), found from the home posture."""
    joints = np.tile(HOME, (len(wanted), 1))
    for _ in range(60):
        joints = track(joints, wanted, np.full(len(wanted), 0.05))
    return joints


def difference(a: Array, b: Array) -> Array:
    """a - b of poses, the yaw the short way round."""
    found = a - b
    found[..., 3] = wrap_angle(found[..., 3])
    return found


def _turn_to(rotation: Array, yaw: Array) -> Array:
    """The small rotation (n, 3) from the hand as it is to one that points down at a yaw."""
    c, s, zero = np.cos(yaw), np.sin(yaw), np.zeros_like(yaw)
    wanted = np.stack(
        [
            np.stack([c, s, zero], -1),
            np.stack([s, -c, zero], -1),
            np.stack([zero, zero, -1 + zero], -1),
        ],
        axis=-1,
    )  # columns: x, y, z of the hand
    return 0.5 * np.sum([_cross(rotation[..., k], wanted[..., k]) for k in range(3)], axis=0)


def _cross(a: Array, b: Array) -> Array:
    """np.cross, several times faster on small arrays."""
    return np.stack(
        [
            a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1],
            a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2],
            a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0],
        ],
        axis=-1,
    )
