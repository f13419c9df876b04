"""The film of a run on a robot: the robot as it remembers itself, over who thinks and acts when.

Pictures are drawn by the robot's side, from its own record, once it is at rest: nothing is
simulated again. What is beside them is the log of decisions and the places that were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from midstride.realtime.drive import Run
from midstride.realtime.journal import Decision
from midstride.realtime.recording import Moment, Recalls
from midstride.report.film import Frames
from midstride.sim.camera import Image

FPS = 25.0
LONGEST_S = 60.0  # of a film
_PER_S, _BEHIND_S, _AHEAD_S = 110, 3.0, 1.0  # pixels; how much of the strip is seen around now
_LABELS, _STRIP = 74, 240  # width of the labels, height of the strip, in pixels
_THINK, _WAIT, _ACT = "#f28e2b", "#fbd6ae", ("#4e79a7", "#86b0d6")
_LINES = ("#333333", "#59a14f", "#b07aa1")
_SHOWN = 3  # dimensions


def robot_film(
    robot: Recalls,
    run: Run,
    names: Sequence[str],
    on_frame: Callable[[float], None] = lambda share: None,
) -> Frames | None:
    """Frames at 25 per second, of at most a minute; None if the robot remembers nothing.

    names: of the dimensions that the robot is told places of
    """
    moments = robot.recall()
    if not moments or not run.decisions:
        return None
    start_s = moments[0].at_s
    end_s = min(moments[-1].at_s - start_s, LONGEST_S)
    times_s = np.array([moment.at_s - start_s for moment in moments])
    wanted_s = np.arange(0.0, end_s + 1e-9, 1 / FPS)
    shown = np.maximum(np.searchsorted(times_s, wanted_s + 1e-9, side="right") - 1, 0)
    below = strip(run.decisions, moments, names, end_s)
    frames = []
    for k, (index, now_s) in enumerate(zip(shown, wanted_s, strict=True)):
        picture = robot.picture(int(index))
        frames.append(np.concatenate([picture, _window(below, now_s, picture.shape[1])]))
        on_frame((k + 1) / len(wanted_s))
    return np.stack(frames)


def strip(
    decisions: Sequence[Decision], moments: Sequence[Moment], names: Sequence[str], end_s: float
) -> Image:
    """Who thinks and acts when, where the robot is and where it was told to go: a whole film's."""
    seconds = end_s + _BEHIND_S + _AHEAD_S
    figure = Figure(figsize=(seconds * _PER_S / 100, _STRIP / 100), dpi=100)
    who = figure.add_axes((0, 0.66, 1, 0.3))
    start_s = moments[0].at_s
    _draw_decisions(who, decisions, start_s)
    places = [m for m in moments if m.position is not None and m.target is not None]
    count = min(_SHOWN, len(names)) if places else 0
    for k in range(count):
        axes = figure.add_axes((0, 0.1 + 0.53 * (count - 1 - k) / count, 1, 0.53 / count - 0.02))
        _draw_place(axes, places, k, start_s)
        axes.set_xlim(-_BEHIND_S, end_s + _AHEAD_S)
        axes.set_yticks([])
        axes.set_xticks([])
    who.set_xlim(-_BEHIND_S, end_s + _AHEAD_S)
    for second in range(int(end_s) + 1):
        figure.text((second + _BEHIND_S) / seconds, 0.01, f"{second} s", ha="center", fontsize=7)
    labels = Figure(figsize=(_LABELS / 100, _STRIP / 100), dpi=100)
    for text, height in (("thought", 0.87), ("action", 0.71)):
        labels.text(0.95, height, text, ha="right", fontsize=7)
    for k in range(count):
        height = 0.1 + 0.53 * (count - 0.5 - k) / count
        labels.text(0.95, height, f"{names[k]}\n(red: told)", ha="right", va="center", fontsize=6)
    return np.concatenate([_drawn(labels), _drawn(figure)], axis=1)


def _draw_decisions(axes: Axes, decisions: Sequence[Decision], start_s: float) -> None:
    """Bars of thinking (paler while a decision waits to come into force), and of acting."""
    taken = [d for d in decisions if d.fate == "in force" and d.taken_s is not None]
    for one in decisions:
        if one.done_s is None:
            continue
        at_s, thought_s = one.captured_s - start_s, one.done_s - one.captured_s
        colour = _THINK if one.fate != "stale" else "#e15759"
        axes.broken_barh([(at_s, thought_s)], (1.1, 0.8), color=colour)
        if one.taken_s is not None and one.taken_s > one.done_s:
            axes.broken_barh(
                [(one.done_s - start_s, one.taken_s - one.done_s)], (1.1, 0.8), color=_WAIT
            )
    ends_s = [one.taken_s or 0.0 for one in taken[1:]]
    for k, (one, end_s) in enumerate(zip(taken, ends_s, strict=False)):
        began_s = one.taken_s or 0.0
        axes.broken_barh([(began_s - start_s, end_s - began_s)], (0.1, 0.8), color=_ACT[k % 2])
    axes.set(ylim=(0, 2), yticks=[], xticks=[])


def _draw_place(axes: Axes, moments: Sequence[Moment], k: int, start_s: float) -> None:
    times_s = [moment.at_s - start_s for moment in moments]
    told = [moment.target[k] for moment in moments if moment.target is not None]
    where = [moment.position[k] for moment in moments if moment.position is not None]
    axes.step(times_s, told, where="post", color="#e15759", lw=0.9)
    axes.plot(times_s, where, color=_LINES[k], lw=1.3)


def _window(whole: Image, now_s: float, width: int) -> Image:
    """The part of the strip around now, as wide as a picture, with a line that marks now."""
    seen = width - _LABELS
    marked = round(seen * _BEHIND_S / (_BEHIND_S + _AHEAD_S))
    first = _LABELS + round((now_s + _BEHIND_S) * _PER_S) - marked
    part = np.full((len(whole), seen, 3), 255, np.uint8)
    low, high = max(first, _LABELS), min(first + seen, whole.shape[1])
    part[:, low - first : high - first] = whole[:, low:high]
    part[:, marked : marked + 2] = (200, 30, 30)
    return np.concatenate([whole[:, :_LABELS], part], axis=1)


def _drawn(figure: Figure) -> Image:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
