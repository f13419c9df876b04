"""Latencies: one policy for latencies of 0 to 50 ms, drawn per episode, evaluated at each.

Writes table.md, returns.csv, latencies.png and config.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from midstride.latency import Fixed, LatencyModel, OnScaleOf
from midstride.latency_text import read_latency
from midstride.learn.agents import Training
from midstride.measure.evaluate import evaluate_in
from midstride.measure.statistics import mean_of
from midstride.paper.study import (
    GridOptions,
    finish,
    prepare,
    read_groups,
    show_table,
    sketch,
    title_of,
    train,
    write_curves,
    write_returns,
)
from midstride.policies import load
from midstride.report.curves import save_figure
from midstride.scale.words import format_return, label
from midstride.seconds import format_s
from midstride.settings import Range
from midstride.sweep.engine import Grid

Totals = dict[str, dict[float, list[list[float]]]]  # arm -> latency in s -> seed -> returns


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    episodes: Annotated[int, Range(1)] = 64
    """how many episodes each policy is evaluated in at each latency"""


def reproduce(options: Options, console: Console) -> None:
    """Train every arm, evaluate it at each latency, write the table and the plot."""
    study = prepare("latencies", options)
    if options.show:
        render(study.output, title_of(study.output), console)
        return
    grid = train(study, options, console)
    totals = evaluate_at_each(grid, options.episodes, console)
    first = next(iter(grid.trainings.values()))[0]
    write_returns(study.output / "returns.csv", totals, options.first_seed)
    write_curves(grid, study.output / "curves.csv")
    title = f"{first.environment.task}, {first.agent.agent}, latency drawn per episode"
    render(study.output, title, console)
    finish(study, grid, console)


def render(output: Path, title: str, console: Console) -> None:
    """table.md and latencies.png from returns.csv alone."""
    totals = read_totals(output / "returns.csv")
    rows = [
        {"agent": arm} | {format_s(at): spread(found) for at, found in by_latency.items()}
        for arm, by_latency in totals.items()
    ]
    trainings = len(next(iter(next(iter(totals.values())).values())))
    shown = f"{title}: return at each latency{sketch(trainings)}"
    show_table(shown, rows, output / "table.md", console)
    save_figure(output / "latencies.png", plot(totals, title))


def read_totals(path: Path) -> Totals:
    """What `write_returns` wrote."""
    totals: Totals = {}
    for (arm, at), found in read_groups(path, "return", ("kind", "latency_s")).items():
        totals.setdefault(arm, {})[float(at)] = found
    return totals


def spread(found: Sequence[Sequence[float]]) -> str:
    """The mean of trainings, and half of its 95 % interval over them."""
    one = mean_of([float(np.mean(returns)) for returns in found])
    half = "" if np.isnan(one.half) else f" ± {format_return(one.half)}"
    return f"{format_return(one.value)}{half}"


def evaluate_at_each(grid: Grid, episodes: int, console: Console) -> Totals:
    """Returns of every policy at every latency that one of them was trained for."""
    every = [t for group in grid.trainings.values() for t in group]
    latencies_s = sorted({float(v) for t in every for v in read_latency(t["latency"]).values_s})
    work = [
        (arm, training, folder, latency_s, model)
        for arm, group in grid.trainings.items()
        for training, folder in zip(group, grid.folders[arm], strict=True)
        for latency_s, model in each_latency(training, latencies_s).items()
    ]
    totals: Totals = {arm: {} for arm in grid.trainings}
    for arm, training, folder, latency_s, model in track(work, "evaluating", console=console):
        environment = replace(training.environment, latency=model)
        found = evaluate_in(load(folder), environment, episodes)
        totals[arm].setdefault(latency_s, []).append([episode.total for episode in found])
    return totals


def each_latency(training: Training, latencies_s: Sequence[float]) -> dict[float, LatencyModel]:
    """Each latency alone; measured as the latency was in training."""
    drawn = read_latency(training["latency"])
    return {value: OnScaleOf(drawn, Fixed(value)) for value in latencies_s}


def plot(totals: Mapping[str, Mapping[float, list[list[float]]]], title: str) -> Figure:
    """Return against latency: a line per arm, the mean of its seeds, and their range."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for arm, by_latency in totals.items():
        milliseconds = [1000 * latency_s for latency_s in by_latency]
        means = np.array([[np.mean(f) for f in found] for found in by_latency.values()])
        (line,) = axes.plot(milliseconds, means.mean(axis=1), marker="o", label=label(arm))
        low, high = means.min(axis=1), means.max(axis=1)
        axes.fill_between(milliseconds, low, high, color=line.get_color(), alpha=0.2, lw=0)
    axes.set(xlabel="latency (ms)", ylabel="return (mean, range of trainings)", title=label(title))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
