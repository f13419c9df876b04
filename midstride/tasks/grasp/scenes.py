"""Scenes: objects dropped into the bin and left to settle, before any episode starts from them.

Settling at every reset would cost more than the episode. A pool of settled scenes is made once,
from a seed; a reset copies one.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from midstride.tasks.grasp import kinematics
from midstride.tasks.grasp.model import BIN_CENTRE, FINGER_OPEN_M, MAX_OBJECTS, PARKED_M
from midstride.tasks.grasp.objects import Design
from midstride.tasks.grasp.world import World

Array = NDArray[np.floating]

_BATCH = 64
_SPREAD_M = 0.075  # of drops around the middle of the bin
_APART_M = 0.06
_DROP_M = 0.05
_SETTLE_TICKS = 250
_AT_REST = 0.05  # m/s and rad/s
_INSIDE_M, _ON_FLOOR_M = 0.105, 0.06
_MOST_ROUNDS = 50
# Where the hand waits at the start of an episode: above the bin, at some place and yaw.
START_LOW = np.array([BIN_CENTRE[0] - 0.07, BIN_CENTRE[1] - 0.07, 0.11, -0.6])
START_HIGH = np.array([BIN_CENTRE[0] + 0.07, BIN_CENTRE[1] + 0.07, 0.15, 0.6])


@dataclass(frozen=True)
class Scenes:
    """Settled scenes; first axis: scenes."""

    objects: NDArray[np.int64]  # (scenes, slots): index of the design, -1 for none
    state: Array  # rows of the physics' state
    joints: Array  # commanded joints

    def __len__(self) -> int:
        return len(self.state)

    def start(
        self,
        world: World,
        ids: NDArray[np.integer],
        which: NDArray[np.integer],
        hands: NDArray[np.integer] | None = None,
    ) -> None:
        """Put environments `ids` into scenes `which`, the hand at rest, nothing in flight.

        hands: scenes that the hands are taken from, where they are others.
        """
        world.batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE.value)  # who sleeps is forgotten
        world.place_objects(ids, self.objects[which])
        world.batch.state[ids] = self.state[which]
        world.commanded_joints[ids] = self.joints[which if hands is None else hands]
        world.qpos[ids[:, None], world.places.arm] = world.commanded_joints[ids]
        world.qvel[ids[:, None], world.places.arm] = 0
        world.qpos[ids[:, None], world.places.fingers] = FINGER_OPEN_M
        world.qvel[ids[:, None], world.places.fingers] = 0
        if world.belt is not None:  # the tray, and what is in it, somewhere along the belt
            begins = world.belt.begins[ids]
            world.qpos[ids, world.places.tray] = begins
            there = world.there()[ids]
            world.qpos[ids[:, None], world.places.object_qpos[:, 1]] += begins[:, None] * there
        world.hold(ids)


def make_scenes(
    designs: tuple[Design, ...],
    count: int,
    fewest: int,
    most: int,
    seed: int,
    threads: int,
    belt: bool = False,
) -> Scenes:
    """`count` settled scenes with `fewest` to `most` objects each; belt: in trays that stand."""
    if not 1 <= fewest <= most <= MAX_OBJECTS:
        raise ValueError(
            f"a bin holds 1 to {MAX_OBJECTS} objects, got "
            f"{fewest if fewest == most else f'{fewest} to {most}'}"
        )
    rng = np.random.default_rng([seed, fewest, most])
    world = World(_BATCH, designs, most, threads, belt=belt)
    found: list[tuple[Array, Array, Array]] = []
    for _ in range(_MOST_ROUNDS + count // 8):
        chosen = _drop(world, rng, fewest, most)
        world.batch.step(nstep=_SETTLE_TICKS)
        good = _settled(world, chosen)
        found += [
            (chosen[i], world.batch.state[i].copy(), world.commanded_joints[i].copy())
            for i in np.flatnonzero(good)
        ]
        if len(found) >= count:
            objects, state, joints = (np.stack(x) for x in zip(*found[:count], strict=True))
            return Scenes(objects, state, joints)
    raise RuntimeError(f"{most} objects do not come to rest in the bin")


def _drop(world: World, rng: np.random.Generator, fewest: int, most: int) -> NDArray[np.int64]:
    n, ids = world.n, np.arange(world.n)
    world.batch.reset()
    chosen = np.full((n, world.slots), -1)
    for i in range(n):
        count = int(rng.integers(fewest, most + 1))
        chosen[i, :count] = rng.choice(len(world.designs), count, replace=False)
    world.place_objects(ids, chosen)
    world.commanded_joints[:] = kinematics.joints_at(rng.uniform(START_LOW, START_HIGH, (n, 4)))
    world.qpos[:, world.places.arm] = world.commanded_joints
    world.qpos[:, world.places.fingers] = FINGER_OPEN_M
    world.hold(ids)
    objects = np.zeros((n, world.slots, 7))
    objects[..., :3] = PARKED_M[: world.slots]
    yaw = rng.uniform(-np.pi, np.pi, (n, world.slots))
    objects[..., 3], objects[..., 6] = np.cos(yaw / 2), np.sin(yaw / 2)
    for i in range(n):
        count = int((chosen[i] >= 0).sum())
        objects[i, :count, :2] = BIN_CENTRE + _apart(rng, count)
        objects[i, :count, 2] = _DROP_M
    world.qpos[:, world.places.object_qpos] = objects
    return chosen


def _apart(rng: np.random.Generator, count: int) -> Array:
    """Places in the bin that leave room for each other."""
    while True:
        points = rng.uniform(-_SPREAD_M, _SPREAD_M, (count, 2))
        gaps = np.linalg.norm(points[:, None] - points[None], axis=-1) + np.eye(count)
        if gaps.min() > _APART_M:
            return points


def _settled(world: World, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
    there = chosen >= 0
    position = world.objects()[..., :3]
    inside = (np.abs(position[..., :2] - BIN_CENTRE) < _INSIDE_M).all(axis=-1)
    low = position[..., 2] < _ON_FLOOR_M
    speed = np.abs(world.qvel[:, world.places.object_dofs]).max(axis=-1)
    good = (inside & low & (speed < _AT_REST)) | ~there
    return np.asarray(good.all(axis=1))
