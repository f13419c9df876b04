"""Grasping at several latencies: how the gap of Table 1 depends on latency (hours).

Concurrent control without knowledge and with vector-to-go, trained at each latency; and policies
that learned in blocking control, run at each as they are. Writes table.md, gap.md, latencies.png,
episodes.csv, curves.csv, curves.png, cost.md and config.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from midstride.paper.grasping import compare_success, groups_of, read_study, summary, write_study
from midstride.paper.judged import judged
from midstride.paper.study import GridOptions, finish, prepare, show_table, train
from midstride.report.curves import save_figure
from midstride.seconds import parse_s
from midstride.sweep.engine import Grid

BLOCKING, KNOWING, LATE = "blocking", "vector-to-go", "blocking, run at the latency"
KINDS = ("unaware", KNOWING, LATE)
Groups = dict[str, list[Any]]  # of measures, one for each training


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""


def reproduce(options: Options, console: Console) -> None:
    """Train both kinds at each latency; write what vector-to-go is worth there."""
    study = prepare("grasp-latencies", options)
    if options.show:
        render(study.output, console)
        return
    grid = train(study, options, console)
    every = [arm.partition(", ")[0] for arm in grid.results if arm != BLOCKING]
    latencies = list(dict.fromkeys(every))
    groups = {arm: [r["measures"] for r in results] for arm, results in grid.results.items()}
    groups |= run_late(grid, latencies, console)
    write_study(grid, groups, study.output, console)
    render(study.output, console)
    finish(study, grid, console)


def render(output: Path, console: Console) -> None:
    """table.md, gap.md and latencies.png from episodes.csv alone."""
    groups: Groups = {**read_study(output, console)}
    latencies = list(dict.fromkeys(arm.partition(", ")[0] for arm in groups if arm != BLOCKING))
    success = {
        (latency, kind): groups_of(groups[f"{latency}, {kind}"], "success")
        for latency in latencies
        for kind in KINDS
        if f"{latency}, {kind}" in groups
    }
    pairs = {
        (latency, other): (success[latency, KNOWING], success[latency, other])
        for other in KINDS
        for latency in latencies
        if other != KNOWING and {(latency, KNOWING), (latency, other)} <= success.keys()
    }
    if pairs:
        title = "What vector-to-go is worth, in points"
        lines = compare_success(pairs, ("latency", "against"))
        show_table(title, lines, output / "gap.md", console)
        save_figure(output / "latencies.png", plot(groups, latencies))


def run_late(grid: Grid, latencies: list[str], console: Console) -> Groups:
    """Measures of the blocking policies, as they are, in concurrent control at each latency."""
    pairs = zip(grid.trainings.get(BLOCKING, ()), grid.folders.get(BLOCKING, ()), strict=True)
    found: Groups = {
        f"{latency}, {LATE}": [] for latency in latencies if grid.folders.get(BLOCKING)
    }
    for training, folder in track(list(pairs), "running blocking late", console=console):
        for latency in latencies:
            there = judged(training, folder, latency, mode="concurrent", latency=latency)
            found[f"{latency}, {LATE}"].append(there["measures"])
    return found


def plot(groups: Groups, latencies: list[str]) -> Figure:
    """Success and duration against latency, a line per kind."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    measures = {"success": "grasp success", "duration_s": "duration, s"}
    for axes, (name, title) in zip(figure.subplots(1, 2), measures.items(), strict=True):
        for kind in KINDS:
            there = [latency for latency in latencies if f"{latency}, {kind}" in groups]
            found = [summary(groups_of(groups[f"{latency}, {kind}"], name)) for latency in there]
            places = [1000 * parse_s(latency) for latency in there]
            halves = np.nan_to_num([one.half for one in found])
            values = [one.value for one in found]
            above = halves if name != "success" else np.minimum(halves, 1 - np.array(values))
            if there:
                axes.errorbar(places, values, [halves, above], marker="o", capsize=3, label=kind)
        axes.set(xlabel="latency, ms", title=title)
        axes.set_xticks([1000 * parse_s(latency) for latency in latencies])
        axes.set_ylim(0, 1.02 if name == "success" else None)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8, loc="lower left")
    return figure
