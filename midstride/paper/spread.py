"""Spread: row 5 of Table 1, trained by one process and by roles on Ray: is it the same?

Trains QT-Opt from images with vector-to-go, locally, one training at a time, and then with the same
settings and seeds on Ray (needs midstride[ray]), with as many environment steps and updates. What
was expected is in the specification. Interrupted, the same command goes on where it was. Writes
table.md, expectations.md, episodes.csv, curves.csv (over steps and over seconds), spread.png and
config.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from midstride.disk.read import damage_of, read_csv
from midstride.disk.runs import Run, read_result
from midstride.envs.checks import available_cores
from midstride.measure.statistics import difference_of, mean_of
from midstride.paper.study import (
    GridOptions,
    finish,
    percent,
    prepare,
    read_groups,
    show_table,
    sketch,
    train,
)
from midstride.report.curves import save_figure
from midstride.settings import Range
from midstride.sweep.disk import MOST_ROWS, original, write_csv
from midstride.sweep.engine import Grid

LOCAL, SPREAD = "one process", "on Ray"
COLUMNS = ("kind", "seed", "steps", "seconds", "success")

Line = tuple[float, float, float]  # steps, seconds, success
Curves = dict[str, dict[str, list[Line]]]  # kind -> seed -> lines


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    workers: Annotated[int | None, Range(1)] = 1
    """how many local trainings run at once: seconds are compared, so one"""
    collectors: Annotated[int, Range(1)] = 1
    """on Ray: processes that take steps"""
    updaters: Annotated[int, Range(1)] = 1
    """on Ray: processes that compute labels"""


def reproduce(options: Options, console: Console) -> None:
    """Train both ways, put them side by side."""
    study = prepare("spread", options)
    if options.show:
        render(study.output, console)
        return
    grid = train(study, options, console)
    grid.folders[SPREAD] = train_spread(grid, study.folder / "ray", options, console)
    grid.trainings[SPREAD] = grid.trainings[LOCAL]
    heading = ["kind", "seed", "episode", "success", "duration_s"]
    write_csv(study.output / "episodes.csv", heading, _episodes(grid))
    write_csv(study.output / "curves.csv", list(COLUMNS), _curves(grid))
    render(study.output, console)
    finish(study, grid, console)


def train_spread(grid: Grid, folder: Path, options: Options, console: Console) -> list[Path]:
    """The same trainings on Ray, one after the other; those that are finished are taken."""
    from midstride.scale.distributed import train_on_ray
    from midstride.scale.plan import ScaleSettings
    from midstride.scale.show import live_table

    roles = options.collectors + options.updaters + 1
    scale = ScaleSettings(
        collectors=options.collectors,
        updaters=options.updaters,
        cores=1.0 if options.address else min(1.0, int(100 * available_cores() / roles) / 100),
    )
    folders = []
    for training in grid.trainings[LOCAL]:
        place = folder / f"{training.run.seed:04}"
        with live_table(console, f"on Ray, seed {training.run.seed}") as show_progress:
            train_on_ray(training, place, scale, options.address, True, show_progress)
        folders.append(place)
    return folders


def _all(grid: Grid) -> Iterator[tuple[str, int, Path]]:
    for kind, folders in grid.folders.items():
        for training, folder in zip(grid.trainings[kind], folders, strict=True):
            yield kind, training.run.seed, folder


def _episodes(grid: Grid) -> Iterator[list[Any]]:
    for kind, seed, folder in _all(grid):
        measures = (read_result(folder) or {})["measures"]
        pairs = zip(measures["success"], measures["duration_s"], strict=True)
        yield from ([kind, seed, i, *pair] for i, pair in enumerate(pairs))


def _curves(grid: Grid) -> Iterator[list[Any]]:
    for kind, seed, folder in _all(grid):
        for line in Run.open(folder).metrics:
            yield [kind, seed, line["steps"], line["seconds"], line["success"]]


def render(output: Path, console: Console) -> None:
    """table.md, expectations.md and spread.png from episodes.csv and curves.csv alone."""
    success, duration = (read_means(output, name) for name in ("success", "duration_s"))
    curves = read_lines(output / "curves.csv")
    seeds = min(map(len, success.values()))
    took_s = {
        kind: np.mean([lines[-1][1] for lines in group.values()]) for kind, group in curves.items()
    }
    rows = [
        {
            "trained": kind,
            "trainings": str(len(values)),
            "success": percent(np.array(values)),
            "episode": f"{np.mean(duration[kind]):.2f} s",
            "a training": f"{took_s[kind] / 60:.1f} min",
        }
        for kind, values in success.items()
    ]
    title = f"Row 5 of Table 1, two ways{sketch(seeds)}"
    show_table(title, rows, output / "table.md", console)
    if seeds > 1:
        show_table("as expected?", list(expected(success)), output / "expectations.md", console)
    save_figure(output / "spread.png", plot(curves))


def read_means(output: Path, name: str) -> dict[str, list[float]]:
    """kind -> the mean of each training's episodes"""
    found = read_groups(output / "episodes.csv", name)
    return {kind: [float(np.mean(one)) for one in group] for (kind,), group in found.items()}


def expected(success: dict[str, list[float]]) -> Iterator[dict[str, str]]:
    """Whether the two are the same, as the specification has it."""
    apart = difference_of(success[SPREAD], success[LOCAL])
    ends = f"[{100 * apart.low:+.1f}, {100 * apart.high:+.1f}]"
    yield {
        "expected": "the interval of the difference has 0 in it",
        "found": f"{100 * apart.value:+.1f} points {ends}",
        "held": "yes" if apart.low <= 0 <= apart.high else "no",
    }
    for one, other in ((SPREAD, LOCAL), (LOCAL, SPREAD)):
        mean, around = float(np.mean(success[one])), mean_of(success[other])
        yield {
            "expected": f"{one}: its mean is within the interval of {other}",
            "found": f"{100 * mean:.1f} % in [{100 * around.low:.1f}, {100 * around.high:.1f}] %",
            "held": "yes" if around.low <= mean <= around.high else "no",
        }


def read_lines(path: Path) -> Curves:
    """What was written of the curves."""
    found: Curves = {}
    lines = read_csv(path, COLUMNS, MOST_ROWS)
    with damage_of(path):
        for line in lines:
            values = float(line["steps"]), float(line["seconds"]), float(line["success"])
            group = found.setdefault(original(line["kind"]), {})
            group.setdefault(line["seed"], []).append(values)
    return found


def plot(curves: Curves) -> Figure:
    """Success over steps, and over minutes: a thin line for each training."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    by_steps, by_time = figure.subplots(1, 2, sharey=True)
    for kind, colour in zip(curves, ("tab:blue", "tab:orange"), strict=False):
        for i, lines in enumerate(curves[kind].values()):
            steps, seconds, success = np.array(lines).T
            label = kind if i == 0 else None
            by_steps.plot(steps, success, color=colour, marker=".", lw=1.2, label=label)
            by_time.plot(seconds / 60, success, color=colour, marker=".", lw=1.2)
    by_steps.set(xlabel="environment steps", ylabel="success of the greedy policy", ylim=(0, 1.02))
    by_time.set(xlabel="minutes")
    for axes in (by_steps, by_time):
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    by_steps.legend()
    return figure
