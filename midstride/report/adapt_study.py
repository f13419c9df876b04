"""What policies keep at latencies, as they are and adapted: a panel for each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from midstride.scale.words import label

_ROWS = {
    "as_it_is": ("as it is", "#b5483a", -0.22),
    "data_alone": ("adapted, data alone", "#8fb8a8", 0.0),
    "adapted": ("adapted, with rounds if needed", "#2a7f62", 0.22),
}
_LOW, _HIGH = -0.1, 1.3  # of what is drawn
_ORDER = ("0.5", "1", "jitter", "2", "3", "5")


def plot_study(figures: Sequence[Mapping[str, Any]]) -> Figure:
    """Each policy a dot (a triangle: beyond the panel), their mean a line; 1: without latency."""
    tasks = list(dict.fromkeys(one["task"] for one in figures))
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(4.2 * columns, 3 * rows + 0.5), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns, sharey=True)).ravel()
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    for axes, task in zip(panels, tasks, strict=False):
        _panel(axes, task, [one for one in figures if one["task"] == task])
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3, fontsize=9)
    return figure


def _panel(axes: Any, task: str, figures: Sequence[Mapping[str, Any]]) -> None:
    there = dict.fromkeys(one["latency"] for one in figures)
    latencies = [name for name in _ORDER if name in there]
    latencies += [name for name in there if name not in _ORDER]
    for name, (words, colour, shift) in _ROWS.items():
        for k, latency in enumerate(latencies):
            values = [one[name] for one in figures if one["latency"] == latency]
            for value in values:  # a triangle points to where one is that is off the panel
                marker = "^" if value > _HIGH else "v" if value < _LOW else "."
                shown = np.clip(value, _LOW, _HIGH)
                axes.plot([k + shift], [shown], marker, color=colour, ms=6, alpha=0.6)
            mean = float(np.clip(np.mean(values), _LOW, _HIGH))
            line = [k + shift - 0.09, k + shift + 0.09]
            axes.plot(line, [mean, mean], color=colour, lw=3, label=words if k == 0 else None)
    axes.axhline(0.9, color="grey", ls="--", lw=0.8)
    axes.set_xticks(range(len(latencies)), latencies)
    axes.set_ylim(-0.15, 1.35)
    count = max(sum(one["latency"] == name for one in figures) for name in latencies)
    axes.set(xlabel="latency (control steps)", ylabel="kept of frozen")
    axes.set_title(label(f"{task} ({count} policies)"), fontsize=10)
    axes.grid(alpha=0.25)
