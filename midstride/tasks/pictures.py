"""Pictures as observations: of a capture, and of earlier ones behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from midstride.sim.camera import Camera, Image
from midstride.sim.task import Viewpoint

if TYPE_CHECKING:
    from mujoco.batch import Batch

_FILM_ASPECT = 4 / 3  # viewpoints are chosen for films, which are wider than high


class Earlier:
    """Pictures of earlier captures, newest first: further channels of an observation."""

    def __init__(self, n: int, count: int, size: int) -> None:
        self.count = count
        self.pictures: Image = np.zeros((n, size, size, 3 * count), np.uint8)

    def push(self, image: Image) -> None:
        """Remember the pictures of a capture."""
        if self.count:
            self.pictures = np.concatenate([image, self.pictures[..., :-3]], axis=-1)

    def reset(self, which: NDArray[np.bool_], image: Image) -> None:
        """Where episodes begin there is nothing earlier: the first picture is repeated."""
        self.pictures[which] = np.tile(image[which], self.count)

    def behind(self, image: Image, ids: NDArray[np.integer]) -> Image:
        """Pictures of environments `ids`, with the earlier ones behind them."""
        if not self.count:
            return image
        return np.concatenate([image, self.pictures[ids]], axis=-1)


class Pictures:
    """What a camera that stands still sees of n environments at each capture."""

    def __init__(self, viewpoint: Viewpoint, n: int, size: int, frames: int) -> None:
        half = np.tan(np.deg2rad(viewpoint.fov_deg) / 2) * _FILM_ASPECT
        square = replace(viewpoint, fov_deg=float(2 * np.rad2deg(np.arctan(half))))
        self.camera = Camera(square, size, size)
        self._everyone = np.arange(n)
        self._newest: Image = np.zeros((n, size, size, 3), np.uint8)
        self._earlier = Earlier(n, frames - 1, size)
        self._fresh = np.ones(n, bool)  # begun, and not captured yet

    def begin(self, ids: NDArray[np.integer]) -> None:
        """Episodes begin in environments `ids`."""
        self._fresh[ids] = True

    def go_on(self) -> None:
        """The world goes on from the last capture."""
        self._earlier.push(self._newest)

    def capture(self, batch: Batch, ids: NDArray[np.integer] | None = None) -> Image:
        """Of all environments; `ids` are those that have changed since the last capture."""
        if ids is None:
            self._newest = self.camera.of_batch(batch, self._everyone)
        else:  # what was handed out before stays as it was
            self._newest = self._newest.copy()
            self._newest[ids] = self.camera.of_batch(batch, ids)
        if self._fresh.any():
            self._earlier.reset(self._fresh, self._newest)
            self._fresh[:] = False
        return self._earlier.behind(self._newest, self._everyone)
