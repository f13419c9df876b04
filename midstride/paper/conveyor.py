"""Conveyor: QT-Opt grasps from a moving belt, where a robot that rests while it thinks is late.

Trains from poses on belts of 0 to 0.3 m/s that turn back at random times: without latency (an
oracle: no belt waits), in hold, and concurrently at 100 ms, unaware and knowing. Every policy then
grasps from belts of fixed speeds. Two rows are not trained: the oracle's policies, run at the
latency as they are, while moving and in hold. What was expected is in the specification, and is
held against what was found. A training takes two to three minutes of a core, of hold with as many
steps eight: 8 x 6 in all. Writes table.md, expectations.md, episodes.csv, conveyor.png, curves.csv,
curves.png and config.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from midstride.measure.statistics import half_width
from midstride.paper.judged import judged
from midstride.paper.regimes import Line, verdicts
from midstride.paper.study import (
    GridOptions,
    finish,
    percent,
    prepare,
    read_curves,
    read_groups,
    show_table,
    sketch,
    train,
    write_curves,
)
from midstride.report.curves import plot_found, save_figure
from midstride.settings import Range
from midstride.sweep.disk import write_csv
from midstride.sweep.engine import Grid

SPEEDS_M_S = (0.0, 0.1, 0.2, 0.3)
STILL, DECISIVE = "0", "0.2"  # m/s, as they are written
ORACLE, HOLD, UNAWARE = "no latency (oracle)", "hold", "unaware"
KNOWING = ("vector-to-go", "previous action + t_AS")
RUN_AT = "the oracle's policy, run at 100 ms"
LATE: dict[str, dict[str, Any]] = {
    RUN_AT: {"latency": "100ms"},
    "the oracle's policy, run in hold": {"latency": "100ms", "mode": "hold", "max_steps": 20},
}
WITHIN, HALF = 0.05, 0.5  # decided before the data: the specification

Shares = Mapping[str, Mapping[str, np.ndarray]]  # arm -> speed -> success of each training


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    seeds: Annotated[int, Range(1)] = 8
    """how many trainings each arm has; a comparison that matters has at least 8"""
    first_seed: Annotated[int, Range(0)] = 100
    """seed of the first training of each arm; the others count up from it"""


def reproduce(options: Options, console: Console) -> None:
    """Train every arm, try it at every speed, hold it against what was expected."""
    study = prepare("conveyor", options)
    if options.show:
        render(study.output, console)
        return
    grid = train(study, options, console)
    heading = ["kind", "seed", "belt_m_s", "episode", "success", "duration_s"]
    write_csv(study.output / "episodes.csv", heading, episodes_of(grid, console))
    write_curves(grid, study.output / "curves.csv", "success")
    render(study.output, console)
    finish(study, grid, console)


def episodes_of(grid: Grid, console: Console) -> Iterator[list[Any]]:
    """Every episode of every policy at every speed; the oracle's also at the latency."""
    work = [
        (name, changes, training, folder)
        for arm, trainings in grid.trainings.items()
        for name, changes in {arm: {}, **(LATE if arm == ORACLE else {})}.items()
        for training, folder in zip(trainings, grid.folders[arm], strict=True)
    ]
    for name, changes, training, folder in track(work, "grasping", console=console):
        for speed in SPEEDS_M_S:
            belt = {"belt_low": speed, "belt_high": speed}
            found = judged(training, folder, f"{name} {speed:g}", **belt, **changes)["measures"]
            pairs = zip(found["success"], found["duration_s"], strict=True)
            for i, (success, duration_s) in enumerate(pairs):
                yield [name, training.run.seed, f"{speed:g}", i, success, f"{duration_s:.6g}"]


def render(output: Path, console: Console) -> None:
    """table.md, expectations.md and the pictures from episodes.csv and curves.csv alone."""
    groups = read_groups(output / "episodes.csv", "success", ("kind", "belt_m_s"))
    found: dict[str, dict[str, np.ndarray]] = {}
    for (arm, speed), trainings in groups.items():
        found.setdefault(arm, {})[speed] = np.array([np.mean(one) for one in trainings])
    seeds = min(map(len, groups.values()))
    title = f"conveyor: grasped, by the speed of the belt{sketch(seeds)}"
    show_table(title, list(table_rows(found)), output / "table.md", console)
    held = verdicts_of(found, seeds)
    if held:
        show_table("conveyor: as expected?", held, output / "expectations.md", console)
    save_figure(output / "conveyor.png", plot(found))
    curves = read_curves(output / "curves.csv", "success")
    title = f"Grasping from a belt of 0 to 0.3 m/s, {seeds} trainings of each"
    save_figure(output / "curves.png", plot_found(curves, title, "success"))


def table_rows(found: Shares) -> Iterator[dict[str, str]]:
    """A row for each arm, a column for each speed: means of trainings, with 95 % intervals."""
    for arm, by_speed in found.items():
        yield {"policy": arm} | {f"{s} m/s": percent(values) for s, values in by_speed.items()}


def verdicts_of(found: Shares, seeds: int) -> list[dict[str, str]]:
    """The lines of the specification, as far as their arms were trained, corrected together."""
    lines = {line.text: line for line in _lines(found)}
    rows = verdicts(list(lines.values()), seeds)
    for row in rows:
        line = lines[row["expected"]]
        if line.paired:
            points = 100 * float((line.first - WITHIN - line.second).mean())
            row["found"] = f"{points:+.1f} points"
        elif row["expected"].startswith(HOLD):
            row["found"] = f"{float(line.second.mean() / line.first.mean()):.0%}"
    return rows


def _lines(found: Shares) -> Iterator[Line]:
    for arm in KNOWING:
        if arm not in found:
            continue
        still, moving = found[arm][STILL], found[arm][DECISIVE]
        text = f"{arm}: at {DECISIVE} m/s within {100 * WITHIN:.0f} points of a belt that stands"
        yield Line(text, moving + WITHIN, still, 1.0, paired=True)
        for other, text, share in (
            (HOLD, f"{HOLD}: at {DECISIVE} m/s less than half of {arm}", 1 / HALF),
            (UNAWARE, f"{arm}: at {DECISIVE} m/s above {UNAWARE}", 1.0),
            (RUN_AT, f"{arm}: at {DECISIVE} m/s above {RUN_AT}", 1.0),
        ):
            if other in found:
                yield Line(text, moving, found[other][DECISIVE], share, paired=False)


def plot(found: Shares) -> Figure:
    """Success against the speed of the belt: means of trainings, 95 % intervals of Student's t."""
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    axes = figure.subplots()
    for k, (arm, by_speed) in enumerate(found.items()):
        at = np.array([float(speed) for speed in by_speed]) + 0.002 * (k - len(found) / 2)
        means = np.array([100 * values.mean() for values in by_speed.values()])
        halves = np.array([100 * half_width(values) for values in by_speed.values()])
        spread = np.minimum(np.nan_to_num(halves), [means, 100 - means])
        line = "--" if arm in LATE else "-"
        axes.errorbar(at, means, spread, marker="o", ls=line, capsize=3, label=arm)
    axes.set(xlabel="speed of the belt, m/s", ylabel="grasped, %", ylim=(-2, 102))
    axes.set_xticks(SPEEDS_M_S)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure
