"""Grasping: environment steps with images, where the time goes, and the camera against OpenGL."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, rates, seconds
from midstride.envs.checks import available_cores
from midstride.sim.camera import Camera, Look
from midstride.tasks.grasp import kinematics, motion
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.grasp.model import VIEWPOINT
from midstride.tasks.grasp.world import World

NUM_ENVS = 32
STEPS = 10
REPEATS = 5
IMAGE = 64
LATENCY_S, PERIOD_S = 0.1, 0.3


def run() -> list[Figure]:
    env = GraspVectorEnv(
        NUM_ENVS, latency=LATENCY_S, period=PERIOD_S, image_size=IMAGE, objects=3, scenes=256
    )
    env.reset(seed=0)
    rng = np.random.default_rng(0)

    def work() -> None:
        for _ in range(STEPS):
            env.step(_random_actions(rng))

    per_second = rates({"steps": (work, STEPS * NUM_ENVS)}, REPEATS)["steps"]
    shares = _shares(work)
    figures = [
        Figure(
            "grasp/steps-per-second",
            per_second,
            "steps/s",
            f"{NUM_ENVS} environments, 3 objects, {IMAGE}x{IMAGE} images, period "
            f"{PERIOD_S} s, {available_cores()} cores",
        ),
        Figure("grasp/python-share", shares["Python"], "of the time", "all of a step"),
    ]
    return [*figures, *_camera_figure(env)]


def _random_actions(rng: np.random.Generator) -> Any:
    commands = rng.random((NUM_ENVS, 3)) * [1, 1, 0.53]  # terminate one time in twenty
    return np.concatenate([rng.uniform(-1, 1, (NUM_ENVS, 4)), commands], axis=1)


def _shares(work: Callable[[], None]) -> dict[str, float]:
    """Which part of the time goes where; the rest is Python."""
    spent: dict[str, float] = {}
    with (
        _timed(World, "physics", "physics", spent),
        _timed(kinematics, "track", "kinematics", spent),
        _timed(kinematics, "forward", "kinematics", spent),
        _timed(motion, "advance", "kinematics", spent),
        _timed(Camera, "of_batch", "camera", spent),
    ):
        total = seconds(work)
    spent["Python"] = total - sum(spent.values())
    shares = {name: value / total for name, value in spent.items()}
    table = Table("part of a step", "share of the time")
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{share:.0%}")
    Console().print(table)
    return shares


@contextmanager
def _timed(owner: Any, name: str, part: str, spent: dict[str, float]) -> Iterator[None]:
    """Add the time that a function takes to a part, not counting calls inside timed calls."""
    function = getattr(owner, name)

    def timed(*args: Any, **options: Any) -> Any:
        if spent.get("_inside"):
            return function(*args, **options)
        spent["_inside"] = 1.0
        start = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            del spent["_inside"]
            spent[part] = spent.get(part, 0.0) + time.perf_counter() - start

    with patch.object(owner, name, timed):
        yield


def _camera_figure(env: GraspVectorEnv) -> list[Figure]:
    """An image by ray casting against one of the same scene by MuJoCo's own renderer."""
    camera = Camera(VIEWPOINT, IMAGE, IMAGE, samples=1, groups=(0,))
    look = Look(colours=env.world.fields["geom_rgba"])

    def cast() -> None:
        camera.of_batch(env.world.batch, None, look)

    cast()
    ours_s, theirs_s = [], []  # theirs: with shadows, and without
    for _ in range(REPEATS):  # by turns, as the machine's speed drifts
        ours_s.append(np.median([seconds(cast) for _ in range(5)]) / NUM_ENVS)
        rendered = subprocess.run(
            [sys.executable, "-m", "benchmarks.renderer", str(IMAGE), "10"],
            env={"MUJOCO_GL": "egl", **os.environ},
            capture_output=True,
            text=True,
        )
        if rendered.returncode:
            reason = rendered.stderr.strip().splitlines()[-1]
            print(f"camera/vs-renderer: left out, mujoco.Renderer does not run here: {reason}")
            return []
        theirs_s.append([float(line) for line in rendered.stdout.split()])
    ours, (theirs, unshaded) = float(np.median(ours_s)), np.median(theirs_s, axis=0)
    return [
        Figure(
            "camera/vs-renderer",
            float(theirs / ours),
            "x",
            f"mujoco.Renderer with EGL, {IMAGE}x{IMAGE}, same scene: {1e3 * theirs:.1f} ms an "
            f"image, ours {1e3 * ours:.2f} ms",
        ),
        Figure(
            "camera/vs-renderer-without-shadows",
            float(unshaded / ours),
            "x",
            f"the same with its shadows off, as ours has none: {1e3 * unshaded:.1f} ms an image",
        ),
    ]
