"""What is seen of the grasping world: pictures, and where everything is.

An image policy observes the picture, the gripper's opening and the hand's height. A state policy
observes the places of all objects instead. What an image ought to tell (`ought_to_tell`) is known
in simulation only, and teaches a network's image layers in training.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from midstride.sim.camera import LIGHT, Camera, Image, Look
from midstride.tasks.grasp.model import (
    FOLLOWED_HEIGHT_M,
    FOLLOWING_VIEWPOINT,
    VIEWPOINT,
    WIDE_VIEWPOINT,
)
from midstride.tasks.grasp.scripted import across
from midstride.tasks.grasp.world import World

Array = NDArray[np.floating]
Depth = NDArray[np.float32]

HAND = ("opening", "height")
VELOCITY = ("vx", "vy", "vz", "vyaw")
BELT = ("belt",)  # speed, in units of 0.3 m/s: belts tell
WHERE = ("x", "y", "yaw")  # of the hand, which an image shows
OBJECT = ("there", "dx", "dy", "dz", "across_cos", "across_sin", "width")
_OFFSET_M = 0.1  # unit of dx, dy, dz
_WIDTH_M = 0.03  # unit of a width
FASTEST_M_S = 0.3  # of belts


class Sight:
    """The camera over each bin, and how each episode looks."""

    def __init__(
        self,
        world: World,
        size: int,
        follows: bool,
        depth: bool,
        jitter: tuple[float, float, float],
    ) -> None:
        """jitter: of the camera's place (metres), of the light's direction and of colours."""
        self.world, self._follows, self._depth, self._jitter = world, follows, depth, jitter
        self.camera_s = 0.0  # spent on pictures so far
        moves = follows or jitter[0] > 0
        n = world.n
        self.look = Look(
            colours=np.zeros((n, world.model.ngeom, 3)),
            position=np.zeros((n, 3)) if moves else None,
            target=np.zeros((n, 3)) if moves else None,
            light=np.zeros((n, 3)) if jitter[1] else None,
        )
        # The upper arm is never in view of a camera that stands still.
        viewpoint, groups = FOLLOWING_VIEWPOINT if follows else VIEWPOINT, None if moves else (0,)
        self.camera = Camera(viewpoint, size, size, samples=1, groups=groups)
        self._wide_camera = Camera(WIDE_VIEWPOINT)

    def paint(self, i: int, rng: np.random.Generator) -> None:
        """How environment i looks in its new episode."""
        camera, light, colour = self._jitter
        look = self.look
        assert look.colours is not None
        look.colours[i] = self.world.fields["geom_rgba"][i, :, :3]
        if colour:
            look.colours[i] *= 1 + colour * rng.uniform(-1, 1, look.colours[i].shape)
            np.clip(look.colours[i], 0, 1, out=look.colours[i])
        if look.position is not None and look.target is not None:
            look.position[i] = VIEWPOINT.position + camera * rng.uniform(-1, 1, 3)
            look.target[i] = VIEWPOINT.target + 0.5 * camera * rng.uniform(-1, 1, 3)
        if look.light is not None:
            direction = LIGHT + light * rng.uniform(-1, 1, 3)
            look.light[i] = direction / np.linalg.norm(direction)

    def photograph(self, ids: NDArray[np.integer]) -> tuple[Image, Depth | None]:
        """What the cameras of environments `ids` see, and how far it is if depth is asked for."""
        started = time.perf_counter()
        batch, look = self.world.batch, self.look.of(ids)
        if self._follows and look.target is not None:
            hand = self.world.pose()[ids, :3]
            hand[:, 2] = FOLLOWED_HEIGHT_M
            look = replace(look, target=look.target + hand - VIEWPOINT.target)
        depth = None
        if self._depth:
            image, depth = self.camera.with_depth(batch, ids, look)
        else:
            image = self.camera.of_batch(batch, ids, look)
        self.camera_s += time.perf_counter() - started
        return image, depth

    def from_afar(self) -> tuple[Image, ...]:
        """A picture of each arm for people."""
        ids, colours = np.arange(self.world.n), Look(colours=self.look.colours)
        return tuple(self._wide_camera.of_batch(self.world.batch, ids, colours))


def hand_of(world: World, ids: NDArray[np.integer], pose: Array) -> Array:
    """The columns of HAND, each from 0 to 1."""
    low, high = world.low[2], world.high[2]
    height = (pose[:, 2] - low) / (high - low)
    return np.clip(np.stack([world.opening()[ids], height], axis=1), 0, 1)


def belt_of(world: World, ids: NDArray[np.integer]) -> Array:
    """The column of BELT."""
    return world.belt_m_s()[ids, None] / FASTEST_M_S


def places_of(world: World, ids: NDArray[np.integer], pose: Array) -> Array:
    """The columns of WHERE, and of OBJECT for each object: nearest first."""
    middle, half = (world.low + world.high) / 2, (world.high - world.low) / 2
    hand = ((pose - middle) / half)[:, [0, 1, 3]]
    return np.concatenate([hand, objects_of(world, ids, pose).reshape(len(ids), -1)], axis=1)


def objects_of(world: World, ids: NDArray[np.integer], pose: Array) -> Array:
    """Of each object, nearest first: the columns of OBJECT, (len(ids), slots, columns)."""
    n, slots = len(ids), world.slots
    objects, there = world.objects()[ids], world.there()[ids]
    yaw, width = across(objects[..., 3:].reshape(-1, 4), world.half_extents[ids].reshape(-1, 3))
    twice = 2 * yaw.reshape(n, slots)
    offset = (objects[..., :3] - pose[:, None, :3]) / _OFFSET_M
    seen = np.concatenate(
        [
            np.ones((n, slots, 1)), offset, np.cos(twice)[..., None], np.sin(twice)[..., None],
            width.reshape(n, slots, 1) / _WIDTH_M,
        ],
        axis=2,
    )  # fmt: skip
    seen[~there] = 0
    distance = np.where(there, np.linalg.norm(offset[..., :2], axis=2), np.inf)
    order = distance.argsort(axis=1)
    return np.take_along_axis(seen, order[..., None], axis=1)


def ought_to_tell(world: World) -> NDArray[np.float32]:
    """What an image ought to tell: (n, numbers); `telling_weights` says how they count.

    The hand's height and yaw; of each object, nearest first, its offset from the hand in units
    of 5 cm, and the direction across it relative to the hand (cosine and sine of twice the angle).
    """
    pose = world.pose()
    seen = objects_of(world, np.arange(world.n), pose)
    offset = seen[..., 1:4] * (_OFFSET_M / 0.05)
    twice = np.arctan2(seen[..., 5], seen[..., 4]) - 2 * pose[:, None, 3]
    turned = np.stack([np.cos(twice), np.sin(twice)], axis=2) * seen[..., :1]
    hand = np.stack([pose[:, 2] / 0.05 - 2, pose[:, 3]], axis=1)
    objects = np.concatenate([offset, turned], axis=2).reshape(world.n, -1)
    return np.concatenate([hand, objects], axis=1).astype(np.float32)


def telling_weights(slots: int) -> NDArray[np.float32]:
    """Of the numbers of `ought_to_tell`; they sum to 1.

    Places count more than directions, and the nearest object more than the others.
    """
    place = np.array([1.0, 1.0, 1.0, 0.3, 0.3])
    weights = np.concatenate([[1.0, 1.0], place, *[place / 4] * (slots - 1)])
    return (weights / weights.sum()).astype(np.float32)
