"""Films of grasping: the arm, what its camera sees, and beside them who thinks and acts when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from midstride.sim.camera import Camera, Image, Look
from midstride.tasks.grasp import actions as action_columns
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.grasp.model import TICK_S, WIDE_VIEWPOINT
from midstride.tasks.grasp.world import SCALE, World

# What to do on an observation, in an environment that can be looked into.
Choose = Callable[[Any, GraspVectorEnv], NDArray[np.floating]]

_FRAME_S = 0.04
FPS = 1 / _FRAME_S
_WIDTH, _HEIGHT, _INSET = 400, 300, 128
_TIMELINE_WIDTH = 520
_THINK, _COLOURS = "#f28e2b", ("#4e79a7", "#86b0d6")
_RENDER_AT_ONCE = 8


@dataclass
class Episode:
    """What is filmed of one episode; times in seconds since its first capture."""

    title: str
    captures_s: list[float] = field(default_factory=list)
    thoughts_s: list[float] = field(default_factory=list)  # how long each took
    switches_s: list[float] = field(default_factory=list)
    closes_s: list[float] = field(default_factory=list)
    end_s: float = 0.0
    success: bool = False
    times_s: list[float] = field(default_factory=list)  # of what follows
    states: list[NDArray[np.floating]] = field(default_factory=list)  # of the physics
    hand_m: list[NDArray[np.floating]] = field(default_factory=list)
    to_go_m: list[float] = field(default_factory=list)
    views: list[Image] = field(default_factory=list)  # what was observed, at each capture
    fields: dict[str, NDArray[Any]] = field(default_factory=dict)  # of the model: the objects
    policy_sees: list[int] = field(default_factory=list)  # index of the view, at each time

    def frames(self) -> NDArray[np.intp]:
        """Which of the times the frames of a film show, one every 40 ms, the end included."""
        wanted = np.arange(0, self.end_s + _FRAME_S, _FRAME_S)
        return np.maximum(np.searchsorted(self.times_s, wanted + 1e-9, side="right") - 1, 0)


def play(env: GraspVectorEnv, choose: Choose, seed: int) -> Episode:
    """One episode of the first environment, recorded many times a second."""
    observation, _ = env.reset(seed=seed)
    world = env.world
    episode = Episode(
        title="", fields={name: rows[0].copy() for name, rows in world.fields.items()}
    )
    start_s, in_force = 0.0, -1

    def record(now: int) -> None:
        nonlocal in_force
        if world.flight.in_force[0] > in_force:  # every switch is a turn of the controller
            in_force = int(world.flight.in_force[0])
            episode.switches_s.append(start_s + now * TICK_S)
            if world.flight.action[0, action_columns.CLOSE] > 0.5:
                episode.closes_s.append(start_s + now * TICK_S)
        episode.times_s.append(start_s + now * TICK_S)
        episode.states.append(world.batch.state[0].copy())
        episode.hand_m.append(world.pose()[0, :3])
        to_go = world.vector_to_go()[0, :3] * SCALE[:3]
        episode.to_go_m.append(float(np.linalg.norm(to_go)))
        episode.policy_sees.append(len(episode.views) - 1)

    world.each_turn = record
    while True:
        episode.captures_s.append(start_s)
        episode.views.append(env.sight.photograph(np.zeros(1, int))[0][0])
        action = choose(observation, env)
        observation, _, terminated, truncated, info = env.step(action)
        episode.thoughts_s.append(float(info["latency_s"][0]))
        start_s += float(info["period_s"][0])
        if terminated[0] or truncated[0]:
            break
    record(0)  # the end
    world.each_turn = lambda now: None
    episode.end_s, episode.success = start_s, bool(info["success"][0])
    outcome = "grasped" if episode.success else "not grasped"
    episode.title = (
        f"{env.mode}: {outcome} in {episode.end_s:.1f} s, {len(episode.views)} decisions"
    )
    return episode


def pictures(episode: Episode, env: GraspVectorEnv, threads: int) -> NDArray[np.uint8]:
    """The arm in every frame, with what the policy saw last in the corner."""
    k = _RENDER_AT_ONCE
    belt = env.world.belt is not None
    world = World(k, env.world.designs, env.world.slots, threads, belt=belt)
    for name, rows in episode.fields.items():
        world.fields[name][:] = rows
    camera = Camera(WIDE_VIEWPOINT, _WIDTH, _HEIGHT)
    look = Look(colours=world.fields["geom_rgba"])
    frames: list[Image] = []
    shown = episode.frames()
    for first in range(0, len(shown), k):
        some = [episode.states[i] for i in shown[first : first + k]]
        ids = np.arange(len(some))
        world.batch.state[ids] = np.stack(some)
        frames += list(camera.of_batch(world.batch, ids, look.of(ids)))
    for frame, i in zip(frames, shown, strict=True):
        view = episode.views[episode.policy_sees[i]]
        index = np.arange(_INSET) * len(view) // _INSET
        frame[: _INSET + 4, : _INSET + 4] = 255
        frame[2 : _INSET + 2, 2 : _INSET + 2] = view[index][:, index]
    return np.stack(frames)


def timeline(episode: Episode, width: int, height: int) -> Figure:
    """Thinking, acting, speed of the hand and what is left to go, over an episode."""
    figure = Figure(figsize=(width / 100, height / 100), dpi=100, layout="constrained")
    who, speed = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1.5])
    switches = [*episode.switches_s, episode.end_s]
    for capture, thought in zip(episode.captures_s, episode.thoughts_s, strict=True):
        who.broken_barh([(capture, thought)], (1.1, 0.8), color=_THINK)
        speed.axvline(capture, color="0.85", lw=0.8, zorder=0)
    for i, switch in enumerate(episode.switches_s):
        who.broken_barh([(switch, switches[i + 1] - switch)], (0.1, 0.8), color=_COLOURS[i % 2])
    for close in episode.closes_s:
        who.annotate("close", (close, 0.5), fontsize=6, rotation=90, va="center", ha="left")
    who.set(yticks=[0.5, 1.5], yticklabels=["action", "thought"], ylim=(0, 2))
    who.set_title(episode.title, fontsize=9)
    times = np.array(episode.times_s)
    if len(times) > 1:
        steps = np.maximum(np.diff(times), TICK_S)
        moved = np.linalg.norm(np.diff(episode.hand_m, axis=0), axis=1) / steps
        speed.plot((times[1:] + times[:-1]) / 2, moved * 100, color="#333", label="speed, cm/s")
    speed.plot(times, np.array(episode.to_go_m) * 100, color="#e15759", label="vector-to-go, cm")
    speed.set(xlabel="seconds", ylim=(0, 24), xlim=(0, max(episode.end_s, _FRAME_S)))
    speed.legend(fontsize=7, loc="upper right", ncols=2, frameon=False)
    for axes in (who, speed):
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def film(episode: Episode, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pictures of an episode beside its timeline, on which a line marks now."""
    figure = timeline(episode, _TIMELINE_WIDTH, frames.shape[1])
    drawn = _drawn(figure)
    axes = figure.axes
    joined = []
    for k, frame in enumerate(frames):
        now = min(k * _FRAME_S / max(episode.end_s, _FRAME_S), 1.0)
        panel = drawn.copy()
        for ax in axes:
            box = ax.get_window_extent()
            x = int(box.x0 + (box.x1 - box.x0) * now)
            panel[len(panel) - int(box.y1) : len(panel) - int(box.y0), x : x + 2] = (200, 30, 30)
        joined.append(np.concatenate([frame, panel], axis=1))
    joined += [joined[-1]] * round(FPS / 2)  # the end, to be looked at
    return np.stack(joined)


def contact_sheet(episode: Episode, frames: NDArray[np.uint8]) -> Image:
    """A few moments of an episode over its timeline, as one picture."""
    chosen = np.linspace(0, len(frames) - 1, 8).round().astype(int)
    rows = [
        np.concatenate(
            [_stamped(frames[i], min(i * _FRAME_S, episode.end_s)) for i in half], axis=1
        )
        for half in (chosen[:4], chosen[4:])
    ]
    below = _drawn(timeline(episode, 4 * _WIDTH, _HEIGHT))
    return np.concatenate([*rows, below])


def _stamped(frame: Image, now_s: float) -> Image:
    figure = Figure(figsize=(0.6, 0.22), dpi=100)
    figure.text(0.5, 0.5, f"{now_s:.2f} s", ha="center", va="center", fontsize=8)
    stamp = _drawn(figure)
    frame = frame.copy()
    frame[-len(stamp) :, -stamp.shape[1] :] = stamp
    return frame


def _drawn(figure: Figure) -> Image:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
