"""Awareness: what 50 ms of latency costs, and what knowing the action in flight gives back.

Trains blocking control, and control at a latency that fills the period, with and without knowledge.
The row that a roboticist asks for first is not trained: the blocking policies, run at the latency.
Writes table.md, returns.csv, curves.csv, curves.png and config.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from midstride.measure.statistics import half_width
from midstride.paper.judged import judged
from midstride.paper.study import (
    GridOptions,
    finish,
    prepare,
    read_curves,
    read_groups,
    show_table,
    sketch,
    title_of,
    train,
    write_curves,
)
from midstride.report.curves import plot_found, save_figure
from midstride.scale.words import format_return
from midstride.sweep.disk import write_csv
from midstride.sweep.engine import Grid

BLOCKING, RUN_AT = "blocking", "blocking, run at 50 ms"
LATENCY: dict[str, Any] = {"latency": "50ms", "execution": "0", "period": None}


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""


def reproduce(options: Options, console: Console) -> None:
    """Train every arm, run the blocking policies at the latency, write tables and curves."""
    study = prepare("awareness", options)
    if options.show:
        render(study.output, title_of(study.output), console)
        return
    grid = train(study, options, console)
    returns = {arm: [r["returns"] for r in group] for arm, group in grid.results.items()}
    if BLOCKING in returns:
        late = run_at_latency(grid, console)
        returns = {BLOCKING: returns.pop(BLOCKING), RUN_AT: late, **returns}
    every = (
        [arm, seed, i, value]
        for arm, group in returns.items()
        for seed, values in enumerate(group, options.first_seed)
        for i, value in enumerate(values)
    )
    write_csv(study.output / "returns.csv", ["kind", "seed", "episode", "return"], every)
    write_curves(grid, study.output / "curves.csv")
    first = next(iter(grid.trainings.values()))[0]
    render(study.output, f"{first.environment.task}, {first.agent.agent}", console)
    finish(study, grid, console)


def render(output: Path, title: str, console: Console) -> None:
    """table.md and curves.png from returns.csv and curves.csv alone."""
    returns = {
        kind: found for (kind,), found in read_groups(output / "returns.csv", "return").items()
    }
    trainings = len(next(iter(returns.values())))
    shown = f"{title}: return of 1000{sketch(trainings)}"
    show_table(shown, table_rows(returns), output / "table.md", console)
    title = f"{title}, {trainings} trainings (mean and range)"
    save_figure(output / "curves.png", plot_found(read_curves(output / "curves.csv"), title))


def run_at_latency(grid: Grid, console: Console) -> list[list[float]]:
    """Returns of the blocking policies, as they are, where the world does not wait for them."""
    pairs = list(zip(grid.trainings[BLOCKING], grid.folders[BLOCKING], strict=True))
    return [
        judged(training, folder, "late", **LATENCY)["returns"]
        for training, folder in track(pairs, "running blocking policies late", console=console)
    ]


def table_rows(returns: Mapping[str, Sequence[Sequence[float]]]) -> list[dict[str, str]]:
    """A row for each arm: the mean of its trainings with its 95 % interval, and each of them."""
    rows = []
    for arm, group in returns.items():
        means = np.array([np.mean(values) for values in group])
        spread = f" ± {format_return(half_width(means))}" if len(means) > 1 else ""
        row = {"agent": arm, "mean": f"{format_return(float(means.mean()))}{spread}"}
        if BLOCKING in returns:
            row["of blocking"] = f"{means.mean() / np.mean(returns[BLOCKING]):.2f}"
        rows.append({**row, "each seed": ", ".join(map(format_return, means))})
    return rows
