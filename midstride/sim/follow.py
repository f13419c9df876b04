"""Pictures of a robot that somebody else modelled: all of it is in view, wherever it goes.

Without OpenGL. Models say little that helps: their cameras are theirs, and their extent includes
the floor. So the view is made of what can move: it follows the root of the robot, from the side.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from midstride.sim.camera import Camera, Image
from midstride.sim.task import Viewpoint

_SEEN = (0, 1, 2)  # groups of geoms that MuJoCo's own viewers show
_SIDEWAYS = np.array([0.25, -1.0, 0.3])  # from where it is looked at
_FOV_DEG = 40.0
_MARGIN = 1.1
_WIDTH, _HEIGHT = 320, 240


class Follower:
    """A camera beside whatever moves in a model."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = model
        # To look at, so that looking changes nothing; first in the usual pose, mostly stretched.
        self._shown = shown = mujoco.MjData(model)
        mujoco.mj_kinematics(model, shown)
        body = model.geom_bodyid
        moves = (model.body_weldid[body] != 0) & (model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE)
        moves &= np.isin(model.geom_group, _SEEN) & (model.geom_rgba[:, 3] > 0)
        if not moves.any():  # nothing moves, or nothing that does is seen: look at everything
            self.root, self.centre = 0, np.array(model.stat.center, float)
            self.radius = float(model.stat.extent)
            return
        self.root = int(np.bincount(model.body_rootid[body[moves]]).argmax())
        places, sizes = shown.geom_xpos[moves], model.geom_rbound[moves]
        self.centre, self.radius = self._around(places, sizes, shown.xpos[self.root])

    def _around(
        self, places: NDArray[np.floating], sizes: NDArray[np.floating], root: NDArray[np.floating]
    ) -> tuple[NDArray[np.floating], float]:
        """Where to look, relative to the root, and how far around it the robot reaches.

        One that stands still about its root can turn in all directions: the root is the middle.
        One that walks keeps its shape: the middle is that of its bounding box.
        """
        low = (places - sizes[:, None]).min(axis=0)
        high = (places + sizes[:, None]).max(axis=0)
        travels = self.model.body_dofnum[self.root] > 1
        centre = ((low + high) / 2 - root) if travels else np.zeros(3)
        reach = np.linalg.norm(places - root - centre, axis=1) + sizes
        return centre, float(reach.max())

    def picture(self, data: mujoco.MjData) -> Image:
        """The robot as it is now, (height, width, 3)."""
        shown = self._shown
        shown.qpos[:], shown.mocap_pos[:], shown.mocap_quat[:] = (
            data.qpos, data.mocap_pos, data.mocap_quat,
        )  # fmt: skip
        mujoco.mj_kinematics(self.model, shown)
        target = self.centre + (shown.xpos[self.root] if self.root else 0)
        distance = _MARGIN * self.radius / np.sin(np.deg2rad(_FOV_DEG) / 2)
        position = target + distance * _SIDEWAYS / np.linalg.norm(_SIDEWAYS)
        viewpoint = Viewpoint(_as_triple(position), _as_triple(target), _FOV_DEG)
        camera = Camera(viewpoint, _WIDTH, _HEIGHT, samples=1, groups=_SEEN)
        return camera.of_data(self.model, shown)


def _as_triple(vector: NDArray[np.floating]) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in vector)
    return x, y, z
