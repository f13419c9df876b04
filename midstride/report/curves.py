"""Learning curves from run folders."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from midstride.disk.files import write_whole
from midstride.disk.runs import read_curve
from midstride.scale.words import label

_NAMES = {"evaluation": "return"}
_SHORT_LEGEND = 5  # lines


def plot_curves(
    groups: Mapping[str, Sequence[Path]], title: str = "", column: str = "evaluation"
) -> Figure:
    """The greedy policy against steps: a line per group, the mean of its runs, and their range."""
    found = {name: [read_curve(one, column) for one in folders] for name, folders in groups.items()}
    return plot_found(found, title, column)


def plot_found(
    groups: Mapping[str, Sequence[Mapping[int, float]]],
    title: str = "",
    column: str = "evaluation",
) -> Figure:
    """The same from curves: of each run, values by steps."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, curves in groups.items():
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        if not steps:
            continue
        values = np.array([[curve[s] for s in steps] for curve in curves])
        (line,) = axes.plot(steps, values.mean(axis=0), marker=".", label=label(name))
        if len(curves) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(steps, low, high, color=line.get_color(), alpha=0.2, lw=0)
    axes.set(
        xlabel="environment steps",
        ylabel=label(f"{_NAMES.get(column, column)} of the greedy policy"),
        title=label(title),
    )
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    if axes.lines:
        _legend(figure, len(groups))
    return figure


def _legend(figure: Figure, lines: int) -> None:
    """Among the curves, or below them where it is so long that it would hide them."""
    if lines <= _SHORT_LEGEND:
        figure.axes[0].legend()
        return
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.2 * -(-lines // 2))
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)


def save_figure(path: Path, figure: Figure) -> None:
    """Write a picture, whole or not at all."""
    write_whole(path, picture_of(figure))


def picture_of(figure: Figure) -> bytes:
    """A figure as a PNG. Signs that the font has not are boxes, which is said nowhere else."""
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        figure.savefig(picture, dpi=150, format="png")
    return picture.getvalue()
