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

_LIGHT = np.array([0.25, -0.55, 0.8]) / np.linalg.norm([0.25, -0.55, 0.8])
_AMBIENT = 0.45
_SKY_LOW = np.array([0.86, 0.90, 0.95])
_SKY_HIGH = np.array([0.45, 0.60, 0.80])
_TEXTURED = np.array([0.28, 0.38, 0.48])  # stands in for a texture: not looked up


@dataclass(frozen=True)
class Camera:
    """A pinhole camera; images are (height, width, 3) uint8."""

    viewpoint: Viewpoint
    width: int = 320
    height: int = 240
    samples: int = 2  # rays per pixel and axis, averaged

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise ValueError(f"an image needs pixels, got {self.width} x {self.height}")

    @cached_property
    def _axes(self) -> NDArray[np.floating]:
        """Right, up and forward of the camera, as rows."""
        forward = np.subtract(self.viewpoint.target, self.viewpoint.position)
        forward = forward / np.linalg.norm(forward)
        right = np.cross(forward, [0, 0, 1])
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(right, forward), forward])

    @property
    def _half_height(self) -> float:
        return float(np.tan(np.deg2rad(self.viewpoint.fov_deg) / 2))

    @cached_property
    def _directions(self) -> NDArray[np.floating]:
        """One unit vector per ray, (height * width * samples, 3)."""
        h, w = self.height * self.samples, self.width * self.samples
        y = self._half_height * (1 - (2 * np.arange(h) + 1) / h)
        x = self._half_height * (self.width / self.height) * ((2 * np.arange(w) + 1) / w - 1)
        xs, ys = np.meshgrid(x, y)
        rays = np.stack([xs, ys, np.ones_like(xs)], axis=-1).reshape(-1, 3) @ self._axes
        return rays / np.linalg.norm(rays, axis=1, keepdims=True)

    def of_batch(
        self,
        batch: Batch,
        ids: NDArray[np.integer] | None = None,
        colours: NDArray[np.floating] | None = None,
    ) -> Image:
        """Images of simulations `ids` of a batch, or of all, (simulations, height, width, 3).

        colours: of each simulation's geoms, (simulations, geoms, 3 or 4), where they differ.
        """
        position = np.array(self.viewpoint.position, float)
        distance, geom, normal = batch.ray(position, self._directions, ids=ids, normal=True)
        if colours is None:
            colours = _geom_colours(batch.model)[None]
        rows = np.arange(len(geom))[:, None] if len(colours) > 1 else 0
        rgb = colours.astype(np.float32)[rows, geom, :3]
        return self._shade(batch.model, distance, geom, normal, rgb)

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
        rgb = _geom_colours(model)[geom]
        return self._shade(model, distance[None], geom[None], normal[None], rgb[None])[0]

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
        rgb: NDArray[np.float32],
    ) -> Image:
        """Images from what rays hit, each (images, rays, ...); `rgb` is changed."""
        brightness = np.abs(normal @ _LIGHT)
        brightness *= 1 - _AMBIENT
        brightness += _AMBIENT
        planes = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE)
        image, ray = np.nonzero(np.isin(geom, planes))
        points = self._directions[ray, :2] * distance[image, ray, None]
        points += self.viewpoint.position[:2]
        dark = np.floor(2 * points).sum(axis=1) % 2 == 1
        brightness[image[dark], ray[dark]] *= 0.8
        rgb *= brightness[..., None].astype(np.float32)
        image, ray = np.nonzero(geom < 0)
        rgb[image, ray] = self._sky[ray]
        k = self.samples
        fine = rgb.reshape(len(rgb), self.height, k, self.width, k, 3)
        mean = sum(fine[:, :, i, :, j] for i in range(k) for j in range(k))
        return np.clip(mean * (255 / k**2), 0, 255).astype(np.uint8)

    @cached_property
    def _sky(self) -> NDArray[np.floating]:
        height = np.clip(self._directions[:, 2:], 0, 1)
        return (_SKY_LOW + (_SKY_HIGH - _SKY_LOW) * height).astype(np.float32)


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
