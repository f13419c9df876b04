"""Seconds per image of `mujoco.Renderer` on the grasping scene: as it comes, and without shadows.

Run alone, as OpenGL is chosen when MuJoCo is first imported:
MUJOCO_GL=egl python -m benchmarks.renderer SIZE COUNT
"""

from __future__ import annotations

import sys

import mujoco
import numpy as np

from benchmarks.figures import seconds
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.grasp.model import VIEWPOINT


def main(size: int, count: int) -> None:
    env = GraspVectorEnv(1, scenes=1, objects=3, observation="state")
    env.reset(seed=0)
    model = env.world.batch.get_model(0)
    data = mujoco.MjData(model)
    data.qpos[:] = env.world.qpos[0]
    mujoco.mj_forward(model, data)
    view = mujoco.MjvCamera()
    along = np.subtract(VIEWPOINT.target, VIEWPOINT.position)
    view.lookat[:] = VIEWPOINT.target
    view.distance = float(np.linalg.norm(along))
    view.azimuth = float(np.rad2deg(np.arctan2(along[1], along[0])))
    view.elevation = float(np.rad2deg(np.arcsin(along[2] / view.distance)))
    model.vis.global_.fovy = VIEWPOINT.fov_deg
    renderer = mujoco.Renderer(model, size, size)

    def render() -> None:
        renderer.update_scene(data, view)
        renderer.render()

    for shadows in (True, False):
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = shadows
        render()
        print(np.median([seconds(render) for _ in range(count)]))
    renderer.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
