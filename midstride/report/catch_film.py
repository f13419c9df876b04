"""Films of Catch: the same throws, by robots that differ in what they do while they think."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from mujoco.batch import Batch
from numpy.typing import NDArray

from midstride.sim.camera import Camera, draw_disc
from midstride.sim.task import Viewpoint
from midstride.tasks.env import TaskVectorEnv

Image = NDArray[np.uint8]
Choose = Callable[[Any, TaskVectorEnv], NDArray[Any]]  # observations, environment -> actions

FPS = 25.0
FRAME_S = 0.02  # of the world: it is filmed at half its speed
_WIDTH, _HEIGHT, _BELOW, _AXIS = 400, 280, 106, 38
_VIEW = Viewpoint(position=(0, -3.1, 0.4), target=(0, 0, 0.4), fov_deg=38)
_THINK, _MOVE, _REST, _NOW = "#9aa5b1", "#59a14f", "#e3e6ea", (200, 30, 30)
_TRAIL = (240, 150, 40)
_LAST_S = 1.0  # of the world: how long a timeline is
_AT_ONCE = 32
_STAY = 22  # frames at the end of a throw


@dataclass
class Throw:
    """What happened in one episode; of pieces of it, in order."""

    title: str
    times_s: list[float] = field(default_factory=list)
    places: list[NDArray[np.floating]] = field(default_factory=list)  # qpos
    targets: list[float] = field(default_factory=list)
    thoughts: list[tuple[float, float]] = field(default_factory=list)  # capture, seconds
    motions: list[tuple[float, float]] = field(default_factory=list)  # in force: from, seconds
    success: bool = False
    beyond_hold: bool = False
    missed_m: float = 0.0
    end_s: float = 0.0  # when the ball came down


def play(envs: TaskVectorEnv, choose: Choose, seed: int, title: str) -> Throw:
    """One episode of one environment, written down every `FRAME_S`."""
    throw, flight, plant = Throw(title), envs.flight, envs.plant
    tick_s = envs.timing.tick_s
    observation, _ = envs.reset(seed=seed)

    def record(ticks: int) -> None:
        now_s = (int(flight.now[0]) + ticks) * tick_s
        throw.times_s.append(now_s)
        throw.places.append(plant.qpos[0].copy())
        throw.targets.append(float(plant.target[0, 0]))
        if ticks and flight.in_force[0] >= 0:
            throw.motions.append((now_s - ticks * tick_s, ticks * tick_s))

    record(0)
    plant.watched = round(FRAME_S / tick_s), record
    over = False
    while not over:
        began_s = float(flight.now[0]) * tick_s
        observation, _, terminated, truncated, info = envs.step(choose(observation, envs))
        throw.thoughts.append((began_s, float(info["latency_s"][0])))
        over = bool(terminated[0] or truncated[0])
    plant.watched = None
    throw.success, throw.end_s = bool(info["success"][0]), float(info["duration_s"][0])
    throw.missed_m = float(info["reach_error_m"][0])
    throw.beyond_hold = bool(info["beyond_hold"][0])
    return throw


def pictures(throw: Throw, envs: TaskVectorEnv) -> Image:
    """What a throw looks like, until the ball is down, (frames, height, width, 3)."""
    camera = Camera(_VIEW, _WIDTH, _HEIGHT)
    batch = Batch(envs.task.model, _AT_ONCE, 1)
    qpos = batch.bind("qpos")
    shown = [k for k, now_s in enumerate(throw.times_s) if now_s <= throw.end_s + 1e-9]
    frames: list[Image] = []
    for first in range(0, len(shown), _AT_ONCE):
        some = shown[first : first + _AT_ONCE]
        qpos[: len(some)] = np.stack([throw.places[k] for k in some])
        frames += list(camera.of_batch(batch, np.arange(len(some))))
    for frame, now in zip(frames, shown, strict=True):
        for x, z in (throw.places[before][1:3] for before in range(0, now, 2)):  # where it was
            i, k = (round(at) for at in camera.project(np.array([x, 0, z]))[::-1])
            if 0 < i < _HEIGHT - 1 and 0 < k < _WIDTH - 1:
                frame[i - 1 : i + 1, k - 1 : k + 1] = _TRAIL
        target = np.array([throw.targets[now]])
        column, row = camera.project(envs.task.marker(throw.places[now], target))
        draw_disc(frame, column, row, radius=0.014 * _HEIGHT, rgb=(235, 70, 60))
    return np.stack(frames)


def film(throws: Sequence[tuple[Throw, Image]]) -> Image:
    """Robots side by side, each over its timeline, on which a line marks now."""
    length = max(len(frames) for _, frames in throws)
    panels = []
    for throw, frames in throws:
        running, ended = _panel(throw, ended=False), _panel(throw, ended=True)
        shown = []
        for k in range(length + _STAY):
            is_over = k >= len(frames)
            picture, (below, left, right) = frames[min(k, len(frames) - 1)], running
            if is_over:
                below = ended[0]
            below = below.copy()
            now_s = min(k * FRAME_S, throw.end_s)
            x = int(left + (right - left) * now_s / _LAST_S)
            below[-_BELOW + 2 : -_AXIS + 6, x : x + 2] = _NOW
            shown.append(np.concatenate([below[:-_BELOW], picture, below[-_BELOW:]]))
        panels.append(np.stack(shown))
    return np.concatenate(panels, axis=2)


def _panel(throw: Throw, ended: bool) -> tuple[Image, float, float]:
    """Title and timeline of a robot, over and under its picture; where the time begins and ends."""
    head = 44
    height = head + _BELOW
    figure = Figure(figsize=(_WIDTH / 100, height / 100), dpi=100)
    verdict, colour = "", "0.2"
    if ended:
        verdict = "caught" if throw.success else f"missed by {100 * throw.missed_m:.0f} cm"
        colour = "#2e7d32" if throw.success else "#c62828"
    figure.text(0.5, 1 - 15 / height, throw.title, ha="center", va="center", fontsize=10)
    figure.text(
        0.5, 1 - 33 / height, verdict, ha="center", va="center", fontsize=11, color=colour,
        weight="bold",
    )  # fmt: skip
    axes = figure.add_axes((0.17, _AXIS / height, 0.79, (_BELOW - _AXIS - 6) / height))
    axes.broken_barh([(0, throw.end_s)], (0.1, 0.8), color=_REST)
    in_force = [(at_s, min(for_s, throw.end_s - at_s)) for at_s, for_s in throw.motions]
    in_force = [(at_s, for_s) for at_s, for_s in in_force if for_s > 0]
    axes.broken_barh(in_force, (0.1, 0.8), color=_MOVE, lw=0)
    for k, (capture_s, seconds) in enumerate(throw.thoughts):
        pale = 1.0 if k % 2 == 0 else 0.6
        seconds = max(0.0, min(seconds, throw.end_s - capture_s))
        axes.broken_barh([(capture_s, seconds)], (1.1, 0.8), color=_THINK, alpha=pale, lw=0)
    axes.set(xlim=(0, _LAST_S), ylim=(0, 2), yticks=[0.5, 1.5], yticklabels=["in force", "thinks"])
    axes.set_xlabel("time, s", fontsize=8, labelpad=1)
    axes.tick_params(labelsize=8, length=2)
    axes.spines[["top", "right"]].set_visible(False)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = axes.get_window_extent()
    drawn = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    return drawn, float(box.x0), float(box.x1)
