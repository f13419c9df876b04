"""Pictures by ray casting: no OpenGL, no display.

A ray per pixel finds the nearest geom; its colour is shaded by the angle between the surface and
the light. Planes are drawn as a checkerboard, misses as sky.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from midstride.sim.task import Viewpoint

if TYPE_CHECKING:
    from mujoco.batch import Batch  # new in MuJoCo 3.17; wrapped environments do without

Image = NDArray[np.uint8]

LIGHT = np.array([0.25, -0.55, 0.8]) / np.linalg.norm([0.25, -0.55, 0.8])
_AMBIENT = 0.45
_MOST_BACKGROUNDS = 256
FAR_M = 5.0  # depth of what is farther, or of nothing
_SKY_LOW = np.array([0.86, 0.90, 0.95])
_SKY_HIGH = np.array([0.45, 0.60, 0.80])
_TEXTURED = np.array([0.28, 0.38, 0.48])  # stands in for a texture: not looked up


@dataclass(frozen=True)
class Look:
    """How each simulation looks and is looked at; first axis: simulations. None: all the same."""

    colours: NDArray[np.floating] | None = None  # of geoms, (n, geoms, 3 or more)
    position: NDArray[np.floating] | None = None  # of the camera, (n, 3)
    target: NDArray[np.floating] | None = None  # what it looks at, (n, 3)
    light: NDArray[np.floating] | None = None  # unit vectors towards the light, (n, 3)

    def of(self, ids: NDArray[np.integer]) -> Look:
        """That of simulations `ids`."""
        return Look(
            *(
                None if part is None else part[ids]
                for part in (self.colours, self.position, self.target, self.light)
            )
        )


@dataclass(frozen=True)
class Hits:
    """What rays hit, and how bright it is there; each (images, rays)."""

    distance: NDArray[np.floating]
    geom: NDArray[np.int32]  # -1: nothing
    brightness: NDArray[np.float32]

    def before(self, behind: Hits) -> Hits:
        """These hits where they are nearer than others, and the others elsewhere."""
        hidden = (behind.geom >= 0) & (behind.distance < self.distance)
        hidden |= self.geom < 0
        return Hits(
            np.where(hidden, behind.distance, self.distance),
            np.where(hidden, behind.geom, self.geom),
            np.where(hidden, behind.brightness, self.brightness),
        )

    @classmethod
    def stack(cls, hits: list[Hits]) -> Hits:
        return cls(
            np.concatenate([one.distance for one in hits]),
            np.concatenate([one.geom for one in hits]),
            np.concatenate([one.brightness for one in hits]),
        )


def _lit(
    model: mujoco.MjModel,
    found: tuple[NDArray[Any], ...],
    light: NDArray[np.floating],
    position: NDArray[np.floating],
    directions: NDArray[np.floating],
) -> Hits:
    """What rays found (distance, geom, normal), with the light on it.

    Planes are a checkerboard.
    """
    distance, geom, normal = found
    if light.ndim == 1:
        facing = (normal.reshape(-1, 3) @ light).reshape(geom.shape)
    else:
        facing = np.einsum("nrk,nk->nr", normal, light)
    brightness = (_AMBIENT + (1 - _AMBIENT) * np.abs(facing)).astype(np.float32)
    plane = np.append(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE, False)  # the last: a miss
    image, ray = np.nonzero(plane[geom])
    if len(image):
        origin, along = (np.broadcast_to(x, (*geom.shape, 3)) for x in (position, directions))
        points = origin[image, ray, :2] + along[image, ray, :2] * distance[image, ray, None]
        dark = np.floor(2 * points).sum(axis=1) % 2 == 1
        brightness[image[dark], ray[dark]] *= 0.8
    return Hits(distance, geom, brightness)


@dataclass(frozen=True)
class Camera:
    """A pinhole camera; images are (height, width, 3) uint8."""

    viewpoint: Viewpoint
    width: int = 320
    height: int = 240
    samples: int = 2  # rays per pixel and axis, averaged
    groups: tuple[int, ...] | None = None  # of geoms that are seen, or all

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise ValueError(f"an image needs pixels, got {self.width} x {self.height}")

    @property
    def _half_height(self) -> float:
        return float(np.tan(np.deg2rad(self.viewpoint.fov_deg) / 2))

    @cached_property
    def axes(self) -> NDArray[np.floating]:
        return _axes(np.array(self.viewpoint.position), np.array(self.viewpoint.target))

    @cached_property
    def rays(self) -> NDArray[np.floating]:
        """Unit vectors in the camera's own frame, (height * width * samples, 3)."""
        h, w = self.height * self.samples, self.width * self.samples
        y = self._half_height * (1 - (2 * np.arange(h) + 1) / h)
        x = self._half_height * (self.width / self.height) * ((2 * np.arange(w) + 1) / w - 1)
        xs, ys = np.meshgrid(x, y)
        rays = np.stack([xs, ys, np.ones_like(xs)], axis=-1).reshape(-1, 3)
        return np.asarray(rays / np.linalg.norm(rays, axis=1, keepdims=True))

    @cached_property
    def directions(self) -> NDArray[np.floating]:
        return self.rays @ self.axes

    @cached_property
    def _geom_groups(self) -> NDArray[np.uint8] | None:
        if self.groups is None:
            return None
        return np.isin(np.arange(mujoco.mjNGROUP), self.groups).astype(np.uint8)

    def of_batch(
        self, batch: Batch, ids: NDArray[np.integer] | None = None, look: Look | None = None
    ) -> Image:
        """Images of simulations `ids` of a batch, or of all, (simulations, height, width, 3)."""
        return (
            self._of_what_moves(batch, ids) if look is None else self.with_hits(batch, ids, look)[0]
        )

    def _of_what_moves(self, batch: Batch, ids: NDArray[np.integer] | None) -> Image:
        """Images of simulations that all look the same: only where something moves is it drawn."""
        model, position = batch.model, np.array(self.viewpoint.position, float)
        distance, geom, normal = batch.ray(
            position, self.directions, self._geom_groups, flg_static=False, ids=ids, normal=True
        )
        behind = self._background(model, LIGHT)
        colours = _geom_colours(model)[None]
        still = self._colours_of_rays(behind, colours, self.directions)  # (1, rays, 3)
        image = np.repeat(self._averaged(still).astype(np.uint8), len(geom), axis=0)
        seen = (geom >= 0) & ((behind.geom < 0) | (distance <= behind.distance))
        which, ray = np.nonzero(seen)
        if not len(which):
            return image
        found = tuple(part[which, ray][None] for part in (distance, geom, normal))
        hits = _lit(model, found, LIGHT, position, self.directions[ray])
        # Every pixel that something moving covers a part of, as the mean of its rays.
        covered, where = np.unique([which, self._pixels[ray]], axis=1, return_inverse=True)
        k = self.samples
        rows, columns = np.divmod(covered[1], self.width)
        step = self.width * k
        corner = rows * k * step + columns * k
        inside = np.array([i * step + j for i in range(k) for j in range(k)])
        rays = corner[:, None] + inside
        rgb = still[0][rays]
        within = np.argmax(rays[where] == ray[:, None], axis=1)
        rgb[where, within] = self._colours_of_rays(hits, colours, self.directions[ray])[0]
        image[covered[0], rows, columns] = (
            sum(rgb[:, i] for i in range(k * k)) / k**2 if k > 1 else rgb[:, 0]
        ).astype(np.uint8)
        return image

    @cached_property
    def _pixels(self) -> NDArray[np.intp]:
        """The pixel that each ray belongs to."""
        k = self.samples
        pixels = np.arange(self.height * self.width).reshape(self.height, self.width)
        return pixels.repeat(k, axis=0).repeat(k, axis=1).ravel()

    def with_depth(
        self, batch: Batch, ids: NDArray[np.integer] | None = None, look: Look | None = None
    ) -> tuple[Image, NDArray[np.float32]]:
        """Images, and how far along the camera's axis everything is, in metres, up to `FAR_M`.

        look: of the same simulations as `ids`
        """
        image, hits = self.with_hits(batch, ids, look)
        depth = np.minimum(hits.distance * self.rays[:, 2], FAR_M)
        depth = np.where(hits.geom < 0, FAR_M, depth).astype(np.float32)
        return image, self._averaged(depth[..., None])[..., 0]

    def with_hits(
        self, batch: Batch, ids: NDArray[np.integer] | None, look: Look | None
    ) -> tuple[Image, Hits]:
        look = look or Look()
        light = LIGHT if look.light is None else look.light
        moves = look.position is not None and look.target is not None
        position, directions = np.array(self.viewpoint.position, float), self.directions
        if look.position is not None and look.target is not None:
            position = look.position[:, None]
            directions = self.rays @ _axes(look.position, look.target)
        found = batch.ray(
            position, directions, self._geom_groups, flg_static=moves, ids=ids, normal=True
        )
        hits = _lit(batch.model, found, light, position, directions)
        if not moves:  # then all that stands still was seen before
            hits = hits.before(self._background(batch.model, light))
        colours = _geom_colours(batch.model)[None] if look.colours is None else look.colours
        return self._averaged(self._colours_of_rays(hits, colours, directions)).astype(
            np.uint8
        ), hits

    def of_data(self, model: mujoco.MjModel, data: mujoco.MjData) -> Image:
        """The image of one simulation, whose kinematics are current."""
        rays = len(self.directions)
        geom, distance = np.zeros(rays, np.int32), np.zeros(rays)
        normal = np.zeros((rays, 3))
        position = np.array(self.viewpoint.position, float)
        mujoco.mj_multiRay(
            model, data, position, self.directions.ravel(), self._geom_groups, 1, -1, geom,
            distance, normal.ravel(), rays, mujoco.mjMAXVAL,
        )  # fmt: skip
        found = (distance[None], geom[None], normal[None])
        hits = _lit(model, found, LIGHT, position, self.directions)
        rgb = self._colours_of_rays(hits, _geom_colours(model)[None], self.directions)
        return self._averaged(rgb).astype(np.uint8)[0]

    def _background(self, model: mujoco.MjModel, light: NDArray[np.floating]) -> Hits:
        """What rays hit if there were only things that cannot move, (1 or images, rays)."""
        if light.ndim > 1:
            return Hits.stack([self._background(model, one) for one in light])
        key = (id(model), light.tobytes())
        if key not in self._backgrounds:
            from mujoco.batch import Batch

            bare = copy.copy(model)
            bare.geom_rgba[model.body_weldid[model.geom_bodyid] != 0, 3] = 0
            bare.geom_matid[:] = -1  # a material would bring its own colour
            position = np.array(self.viewpoint.position, float)
            found = Batch(bare, 1, 1, persistent=True).ray(
                position, self.directions, self._geom_groups, normal=True
            )
            hits = _lit(bare, found, light, position, self.directions)
            if len(self._backgrounds) >= _MOST_BACKGROUNDS:
                self._backgrounds.clear()
            self._backgrounds[key] = (model, hits)
        return self._backgrounds[key][1]

    @cached_property
    def _backgrounds(self) -> dict[tuple[int, bytes], tuple[mujoco.MjModel, Hits]]:
        return {}  # with the model, so that its id stays its own

    def project(self, point: NDArray[np.floating]) -> tuple[float, float]:
        """Column and row of a world point in the image, in pixels."""
        x, y, depth = self.axes @ np.subtract(point, self.viewpoint.position)
        scale = self.height / (2 * self._half_height * depth)
        return self.width / 2 + x * scale, self.height / 2 - y * scale

    def _colours_of_rays(
        self, hits: Hits, colours: NDArray[np.floating], directions: NDArray[np.floating]
    ) -> NDArray[np.float32]:
        geom = hits.geom
        table = np.clip(colours[..., :3], 0, 1, dtype=np.float32)
        offset = (np.arange(len(geom)) * table.shape[1])[:, None] if len(table) > 1 else 0
        rgb = np.take(table.reshape(-1, 3), geom + offset, axis=0)
        rgb *= (255 * hits.brightness)[..., None]
        image, ray = np.nonzero(geom < 0)
        if len(image):
            height = np.broadcast_to(directions, (*geom.shape, 3))[image, ray, 2:]
            rgb[image, ray] = 255 * (_SKY_LOW + (_SKY_HIGH - _SKY_LOW) * np.clip(height, 0, 1))
        return rgb

    def _averaged(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Values of rays (images, rays, channels) as means over pixels (images, h, w, channels)."""
        k, channels = self.samples, values.shape[-1]
        fine = values.reshape(len(values), self.height, k, self.width, k, channels)
        if k == 1:
            return fine[:, :, 0, :, 0]
        mean = sum(fine[:, :, i, :, j] for i in range(k) for j in range(k)) / k**2
        return np.asarray(mean, np.float32)


def _axes(position: NDArray[np.floating], target: NDArray[np.floating]) -> NDArray[np.floating]:
    """Right, up and forward of a camera, as rows: (..., 3, 3)."""
    forward = target - position
    forward = forward / np.linalg.norm(forward, axis=-1, keepdims=True)
    right = np.cross(forward, [0, 0, 1])
    right /= np.linalg.norm(right, axis=-1, keepdims=True)
    return np.stack([right, np.cross(right, forward), forward], axis=-2)


def _geom_colours(model: mujoco.MjModel) -> NDArray[np.floating]:
    """The colour of each geom: its material's, if it has one; (ngeom, 3)."""
    rgb = model.geom_rgba[:, :3].astype(np.float32)
    with_material = np.flatnonzero(model.geom_matid >= 0)
    material = model.geom_matid[with_material]
    textured = (model.mat_texid[material] >= 0).any(axis=1)
    rgb[with_material] = model.mat_rgba[material, :3] * np.where(textured[:, None], _TEXTURED, 1)
    return rgb


def draw_disc(
    image: Image, column: float, row: float, radius: float, rgb: tuple[int, int, int]
) -> None:
    """Draw a filled disc with a dark rim into an image, in place."""
    ys, xs = np.mgrid[: image.shape[0], : image.shape[1]]
    r = np.hypot(xs - column, ys - row)
    image[r <= radius] = (30, 30, 30)
    image[r <= 0.7 * radius] = rgb
