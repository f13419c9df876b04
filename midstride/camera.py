"""Pictures by ray casting: no OpenGL, no display.

A ray per pixel finds the nearest geom; its colour is shaded by the angle between the surface and
the light. Planes are drawn as a checkerboard, misses as sky.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from midstride.tasks import Viewpoint

Image = NDArray[np.uint8]

LIGHT = np.array([0.25, -0.55, 0.8]) / np.linalg.norm([0.25, -0.55, 0.8])
_AMBIENT = 0.45
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
    def _axes(self) -> NDArray[np.floating]:
        return _axes(np.array(self.viewpoint.position), np.array(self.viewpoint.target))

    @cached_property
    def _rays(self) -> NDArray[np.floating]:
        """Unit vectors in the camera's own frame, (height * width * samples, 3)."""
        h, w = self.height * self.samples, self.width * self.samples
        y = self._half_height * (1 - (2 * np.arange(h) + 1) / h)
        x = self._half_height * (self.width / self.height) * ((2 * np.arange(w) + 1) / w - 1)
        xs, ys = np.meshgrid(x, y)
        rays = np.stack([xs, ys, np.ones_like(xs)], axis=-1).reshape(-1, 3)
        return np.asarray(rays / np.linalg.norm(rays, axis=1, keepdims=True))

    @cached_property
    def _directions(self) -> NDArray[np.floating]:
        return self._rays @ self._axes

    @cached_property
    def _geom_groups(self) -> NDArray[np.uint8] | None:
        if self.groups is None:
            return None
        return np.isin(np.arange(mujoco.mjNGROUP), self.groups).astype(np.uint8)

    def of_batch(
        self, batch: Batch, ids: NDArray[np.integer] | None = None, look: Look | None = None
    ) -> Image:
        """Images of simulations `ids` of a batch, or of all, (simulations, height, width, 3)."""
        return self.with_depth(batch, ids, look)[0]

    def with_depth(
        self, batch: Batch, ids: NDArray[np.integer] | None = None, look: Look | None = None
    ) -> tuple[Image, NDArray[np.float32]]:
        """Images, and how far along the camera's axis everything is, in metres, up to `FAR_M`.

        look: of the same simulations as `ids`
        """
        look = look or Look()
        position, directions = np.array(self.viewpoint.position, float), self._directions
        if look.position is not None and look.target is not None:
            position = look.position[:, None]
            directions = self._rays @ _axes(look.position, look.target)
        distance, geom, normal = batch.ray(
            position, directions, self._geom_groups, ids=ids, normal=True
        )
        colours = look.colours
        if colours is None:
            colours = _geom_colours(batch.model)[None]
        light = LIGHT if look.light is None else look.light
        points = (position, directions)
        image = self._shade(batch.model, distance, geom, normal, colours, light, points)
        depth = np.where(geom < 0, FAR_M, np.minimum(distance * self._rays[:, 2], FAR_M))
        return image, self._averaged(depth.astype(np.float32)[..., None])[..., 0]

    def of_data(self, model: mujoco.MjModel, data: mujoco.MjData) -> Image:
        """The image of one simulation, whose kinematics are current."""
        rays = len(self._directions)
        geom, distance = np.zeros(rays, np.int32), np.zeros(rays)
        normal = np.zeros((rays, 3))
        position = np.array(self.viewpoint.position, float)
        mujoco.mj_multiRay(
            model, data, position, self._directions.ravel(), None, 1, -1, geom, distance,
            normal.ravel(), rays, mujoco.mjMAXVAL,
        )  # fmt: skip
        return self._shade(
            model, distance[None], geom[None], normal[None], _geom_colours(model)[None], LIGHT,
            (position, self._directions),
        )[0]  # fmt: skip

    def project(self, point: NDArray[np.floating]) -> tuple[float, float]:
        """Column and row of a world point in the image, in pixels."""
        x, y, depth = self._axes @ np.subtract(point, self.viewpoint.position)
        scale = self.height / (2 * self._half_height * depth)
        return self.width / 2 + x * scale, self.height / 2 - y * scale

    def _shade(
        self,
        model: mujoco.MjModel,
        distance: NDArray[np.floating],
        geom: NDArray[np.int32],
        normal: NDArray[np.floating],
        colours: NDArray[np.floating],
        light: NDArray[np.floating],
        rays: tuple[NDArray[np.floating], NDArray[np.floating]],
    ) -> Image:
        """Images from what rays hit, each (images, rays, ...)."""
        n = len(geom)
        table = np.ascontiguousarray(colours[..., :3], np.float32)
        offset = (np.arange(n) * table.shape[1])[:, None] if len(table) > 1 else 0
        rgb = np.take(table.reshape(-1, 3), geom + offset, axis=0)
        brightness = np.abs(normal @ light[..., None])[..., 0]
        brightness *= 1 - _AMBIENT
        brightness += _AMBIENT
        plane = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
        image, ray = np.nonzero(plane[geom] & (geom >= 0))
        origin, directions = (np.broadcast_to(part, (*geom.shape, 3)) for part in rays)
        points = origin[image, ray, :2] + directions[image, ray, :2] * distance[image, ray, None]
        dark = np.floor(2 * points).sum(axis=1) % 2 == 1
        brightness[image[dark], ray[dark]] *= 0.8
        rgb *= brightness[..., None].astype(np.float32)
        image, ray = np.nonzero(geom < 0)
        height = np.clip(directions[image, ray, 2:], 0, 1)
        rgb[image, ray] = _SKY_LOW + (_SKY_HIGH - _SKY_LOW) * height
        return np.clip(self._averaged(rgb) * 255, 0, 255).astype(np.uint8)

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
