"""Grasping at several latencies: how the gap of Table 1 depends on latency (hours).

Concurrent control without knowledge and with vector-to-go, trained at each latency. Writes
table.md, gap.md, latencies.png, episodes.csv, curves.png, cost.md and config.json.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from midstride.paper.grasping import compare_success, measured, summary, write_study
from midstride.paper.study import GridOptions, finish, prepare, show_table, train
from midstride.report.curves import save_figure
from midstride.seconds import parse_s
from midstride.sweep.engine import Grid

KINDS = ("unaware", "vector-to-go")


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""


def reproduce(options: Options, console: Console) -> None:
    """Train both kinds at each latency; write what vector-to-go is worth there."""
    study = prepare("grasp-latencies", options)
    grid = train(study, options, console)
    write_study(grid, study.output, console)
    latencies = [
        latency
        for latency in dict.fromkeys(arm.partition(",")[0] for arm in grid.results)
        if all(f"{latency}, {kind}" in grid.results for kind in KINDS)
    ]
    if latencies:
        unaware, knowing = (
            {latency: measured(grid, f"{latency}, {kind}", "success") for latency in latencies}
            for kind in KINDS
        )
        pairs = {latency: (knowing[latency], unaware[latency]) for latency in latencies}
        gaps = compare_success(pairs, ("latency", "success, vector-to-go - unaware"))
        show_table("What vector-to-go is worth, in points", gaps, study.output / "gap.md", console)
        save_figure(study.output / "latencies.png", plot(grid, latencies))
    finish(study, grid, console)


def plot(grid: Grid, latencies: list[str]) -> Figure:
    """Success and duration against latency, a line per kind."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    places = [1000 * parse_s(latency) for latency in latencies]
    measures = {"success": "grasp success", "duration_s": "duration, s"}
    for axes, (name, title) in zip(figure.subplots(1, 2), measures.items(), strict=True):
        for kind in KINDS:
            groups = [measured(grid, f"{latency}, {kind}", name) for latency in latencies]
            found = [summary(group) for group in groups]
            values = [one.value for one in found]
            halves = np.nan_to_num([one.half for one in found])
            axes.errorbar(places, values, halves, marker="o", capsize=3, label=kind)
        axes.set(xlabel="latency, ms", title=title, xticks=places)
        axes.set_ylim(0, 1.02 if name == "success" else None)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8, loc="lower left")
    return figure
