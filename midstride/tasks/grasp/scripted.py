"""Scripted policies: a yardstick, and the data that learning starts from.

Both act in blocking and in concurrent control: the privileged one predicts where the hand will be
when its action begins, from the motion that is in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from midstride.envs.learnable import Act
from midstride.tasks.grasp import kinematics, motion
from midstride.tasks.grasp.actions import CLOSE, COMMANDS, OPEN, SIZE, TERMINATE
from midstride.tasks.grasp.actions import HIGH as ACTION_HIGH
from midstride.tasks.grasp.actions import LOW as ACTION_LOW
from midstride.tasks.grasp.model import FINGER_OPEN_M, TICK_S
from midstride.tasks.grasp.world import CONTROL_TICKS, HIGH, LOW, SCALE, World

if TYPE_CHECKING:  # what is scripted is one of its hints
    from midstride.tasks.grasp.env import GraspVectorEnv

Array = NDArray[np.floating]

_NOISE = (0.02, 0.4)  # of the shaken policies: the calmest and the wildest

_ABOVE_M = 0.09  # hand height for moving sideways
_GRASP_BELOW_M = 0.004  # of the object's centre
_NEAR_M, _ALIGNED_M, _ALIGNED_RAD, _DOWN_M = 0.03, 0.010, 0.2, 0.010
_CLEARLY_M = 0.01  # above what counts as lifted, so that it stays so
_EMPTY = 0.08  # opening at which closed fingers hold nothing
_ANGLES = np.arange(24) * np.pi / 24


def predicted_pose(world: World, latency_ticks: NDArray[np.int64]) -> Array:
    """The pose at the switch: what is measured, plus what the reference will do until then."""
    reference, velocity = world.reference, world.velocity
    left = latency_ticks.copy()
    while (left > 0).any():
        dt = np.minimum(left, CONTROL_TICKS)
        moved = motion.advance(
            reference, velocity, world.goal, np.maximum(dt, 1) * TICK_S, world.limits
        )
        going = (left > 0)[:, None]
        reference = np.where(going, moved[0], reference)
        velocity = np.where(going, moved[1], velocity)
        left -= dt
    return world.pose() + kinematics.difference(reference, world.reference)


def privileged(
    world: World,
    latency_ticks: NDArray[np.int64],
    noise: float | Array = 0.0,
    rng: np.random.Generator | None = None,
    ahead_s: float = 0.0,
) -> Array:
    """Actions (n, 7) of a policy that knows where the objects are.

    Over the nearest object, down with the fingers across its narrow side, close, up, terminate. On
    a belt it goes where the object will be `ahead_s` after the switch. With noise, one number or
    one for each, displacements are shaken by normal noise of that size, and commands are at times
    drawn at random.
    """
    n = world.n
    pose = predicted_pose(world, latency_ticks)
    target, extents = _nearest(world, pose)
    belt = world.belt_m_s()
    target[:, 1] += belt * latency_ticks * TICK_S
    to_go = target[:, :2] - pose[:, :2]
    distance = np.linalg.norm(to_go, axis=1)
    to_go[:, 1] += belt * ahead_s
    yaw = np.clip(across(target[:, 3:], extents)[0], LOW[3], HIGH[3])
    turn = yaw - pose[:, 3]
    down = np.maximum(target[:, 2] - _GRASP_BELOW_M, LOW[2] + 0.002)

    opening, closed = world.opening(), world.grip < FINGER_OPEN_M / 2
    empty = closed & (opening < _EMPTY)
    holding = closed & ~empty & (np.abs(_finger_speed(world)) < 0.02)
    aligned = (distance < _ALIGNED_M) & (np.abs(turn) < _ALIGNED_RAD)
    high = np.where(distance < _NEAR_M, pose[:, 2], _ABOVE_M)
    height = np.where(aligned, down, np.maximum(high, np.where(pose[:, 2] < 0.07, _ABOVE_M, high)))
    sideways = aligned | (pose[:, 2] > 0.055)  # do not plough through the bin

    action = np.zeros((n, SIZE))
    action[:, :2] = np.where(sideways[:, None], to_go / SCALE[:2], 0)
    action[:, 2] = (height - pose[:, 2]) / SCALE[2]
    action[:, 3] = turn / SCALE[3]
    action[aligned & (pose[:, 2] < down + _DOWN_M) & ~closed, CLOSE] = 1
    action[closed, :4] = 0
    action[closed, 1] = (belt * ahead_s)[closed] / SCALE[1]  # with the belt, until it is lifted
    action[holding, 2] = 1
    action[empty, 2], action[empty, OPEN] = 0.5, 1
    action[world.lifted(_CLEARLY_M).any(axis=1), TERMINATE] = 1
    action[:, :4] = np.clip(action[:, :4], -1, 1)
    if np.any(noise):
        assert rng is not None
        noise = np.broadcast_to(noise, n)
        shake = noise[:, None] * rng.standard_normal((n, 4))
        action[:, :4] = np.clip(action[:, :4] + shake, -1, 1)
        shaken = rng.random(n) < 0.2 * noise
        action[shaken, CLOSE : OPEN + 1] = np.eye(3)[rng.integers(3, size=int(shaken.sum())), :2]
    return action


def blind(world: World, step: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """Actions (n, 7) of a policy that sees nothing: down at random places, close, up, terminate."""
    n = world.n
    pose = world.pose()
    action = np.zeros((n, SIZE))
    closed = world.grip < FINGER_OPEN_M / 2
    wander = (step < 3) & ~closed
    action[:, :2] = np.where(wander[:, None], rng.uniform(-1, 1, (n, 2)), 0)
    action[:, 3] = np.where(wander, rng.uniform(-1, 1, n), 0)
    low = pose[:, 2] < LOW[2] + 0.015
    action[:, 2] = np.where(wander, 0, np.where(closed, 1, -1))
    action[low & ~closed, 2] = 0
    action[low & ~closed, CLOSE] = 1
    action[closed & (pose[:, 2] > 0.12), TERMINATE] = 1
    return action


def demonstrator(envs: GraspVectorEnv, rng: np.random.Generator) -> Act:
    """Noisy scripted policies, to learn from before acting oneself.

    Three in four environments follow the privileged policy, each with noise of its own size; one
    in four is blind, and shaken too. Now and then a command is random. Terminate is tried often
    where nothing is lifted: that it does not pay there must be learned everywhere.
    """
    n, world = envs.num_envs, envs.world
    settings, tried = COMMANDS.settings, COMMANDS.tried[:3] / COMMANDS.tried[:3].sum()
    noise = np.linspace(*_NOISE, n)[rng.permutation(n)]
    is_blind = np.arange(n) % 4 == 3

    def act(observation: Any) -> tuple[Array, dict[str, Array]]:
        ahead_s = envs.timing.longest_period_s if world.belt is not None else 0.0
        action = privileged(world, envs.next_latency_ticks(), noise, rng, ahead_s)
        unseeing = blind(world, envs.steps_taken, rng)
        unseeing[:, :4] += noise[:, None] * rng.standard_normal((n, 4))
        action[is_blind] = unseeing[is_blind]
        anything = rng.random(n) < 0.08
        action[anything, 4:] = settings[rng.choice(3, int(anything.sum()), p=tried)]
        too_early = (rng.random(n) < 0.04) & ~world.lifted().any(axis=1)
        action[too_early, 4:] = settings[3]
        return np.clip(action, ACTION_LOW, ACTION_HIGH), {}

    return act


def _finger_speed(world: World) -> Array:
    return np.asarray(world.qvel[:, world.places.fingers].sum(axis=1))


def _nearest(world: World, pose: Array) -> tuple[Array, Array]:
    """Position and rotation of the nearest object (n, 7), and its half extents (n, 3)."""
    objects = world.objects()
    away = np.linalg.norm(objects[..., :2] - pose[:, None, :2], axis=2)
    j = away.argmin(axis=1)
    return objects[np.arange(world.n), j], world.half_extents[np.arange(world.n), j]


def across(quaternion: Array, extents: Array) -> tuple[Array, Array]:
    """The hand's yaw at which its fingers close over the narrowest side, and how narrow it is.

    Of objects with rotations (n, 4) and half extents (n, 3); of several such yaws the one nearest
    to 0, and half the width.
    """
    w, x, y, z = quaternion.T
    # The object's axes, horizontally: columns of its rotation, first two rows.
    axes = np.stack(
        [
            np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
            np.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
        ],
        axis=1,
    )
    directions = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)])
    widths = np.einsum("nka,nk->na", np.abs(np.einsum("nik,ia->nka", axes, directions)), extents)
    # Of equally narrow ones the one with the least turn: a round thing needs none.
    yaw = (_ANGLES + np.pi) % np.pi - np.pi / 2
    best = (widths + 1e-3 * np.abs(yaw)).argmin(axis=1)
    return yaw[best], widths[np.arange(len(best)), best]
