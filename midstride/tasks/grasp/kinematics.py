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
_TO_HOME_S = 1.0  # time constant of the pull to the home posture, where the task leaves it free


def forward(joints: Array) -> tuple[Array, Array, Array, Array]:
    """Of joints (n, 7): fingertip (n, 3), hand rotation (n, 3, 3), and the Jacobian's parts.

    The parts are each joint's axis and a point on it, (n, 7, 3) both.

    Frames are kept as their three axes: a right-angled turn swaps two of them, a joint mixes two,
    and most of the published offsets are zero. That is several times faster than matrix products
    of a few small matrices.
    """
    n = len(joints)
    cos, sin = np.cos(joints.T)[..., None], np.sin(joints.T)[..., None]
    x, y, z = (np.broadcast_to(axis, (n, 3)) for axis in np.eye(3))
    point = np.zeros((n, 3))
    axes, points = np.empty((n, JOINTS, 3)), np.empty((n, JOINTS, 3))
    for i in range(JOINTS):
        for axis, offset in zip((x, y, z), POSITIONS[i], strict=True):
            if offset:
                point = point + offset * axis
        if TURNS[i] > 0:
            y, z = z, -y
        elif TURNS[i] < 0:
            y, z = -z, y
        x, y = x * cos[i] + y * sin[i], y * cos[i] - x * sin[i]
        axes[:, i], points[:, i] = z, point
    c, s = np.cos(HAND_TURN), np.sin(HAND_TURN)
    rotation = np.stack([x * c + y * s, y * c - x * s, z], axis=-1)
    return point + z * (FLANGE_M + FINGERTIP_M), rotation, axes, points


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
    posture = -np.expm1(-dt_s / _TO_HOME_S)[:, None] * (HOME - joints)
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
    wanted = np.zeros((len(yaw), 3, 3))  # rows: x, y, z of the hand
    wanted[:, 0, 0], wanted[:, 0, 1] = np.cos(yaw), np.sin(yaw)
    wanted[:, 1, 0], wanted[:, 1, 1] = wanted[:, 0, 1], -wanted[:, 0, 0]
    wanted[:, 2, 2] = -1
    return np.asarray(0.5 * _cross(np.swapaxes(rotation, 1, 2), wanted).sum(axis=1))


def _cross(a: Array, b: Array) -> Array:
    """np.cross, several times faster on small arrays."""
    found = np.empty(np.broadcast_shapes(a.shape, b.shape))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        found[..., i] = a[..., j] * b[..., k] - a[..., k] * b[..., j]
    return found
