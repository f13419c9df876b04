"""What experiments with grasping share: how they are summed up, compared, plotted and paid for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from midstride.measure.statistics import Estimate, difference_of, differs, holm, mean_of
from midstride.paper.study import read_groups, show_table, sketch, write_curves
from midstride.report.curves import plot_curves, save_figure
from midstride.report.parts import p_text
from midstride.sweep.disk import write_csv
from midstride.sweep.engine import Grid

_PIECES = (
    "demonstrations", "first updates", "physics", "camera", "acting", "replay", "labelling",
    "fitting", "evaluation", "checkpoints",
)  # fmt: skip
Groups = Sequence[Sequence[float]]  # of episodes, one group per training


def training_means(groups: Groups) -> list[float]:
    """What counts of each training; one without episodes of the kind asked for counts not."""
    return [float(np.mean(group)) for group in groups if len(group)]


def summary(groups: Groups) -> Estimate:
    """The mean over trainings, and its interval."""
    return mean_of(training_means(groups))


def difference(mine: Groups, other: Groups, scale: float = 100, unit: str = "") -> str:
    """How much more than the other, with its interval: in points unless told otherwise."""
    if not all(len(group) for group in (*mine, *other)):
        return "-"
    found = difference_of(training_means(mine), training_means(other)).scaled(scale)
    digits = 1 if scale > 1 else 2
    mean = f"{found.value:+.{digits}f}{unit}"
    if np.isnan(found.low):
        return mean
    return f"{mean} ({found.low:+.{digits}f} to {found.high:+.{digits}f})"


def percent(found: Estimate) -> str:
    """A share; an end of its interval that no share can have is the nearest that one can."""
    if np.isnan(found.low):
        return f"{found.value:.1%}"
    return f"{found.value:.1%} ({max(found.low, 0.0):.1%} to {min(found.high, 1.0):.1%})"


def write_cost(grid: Grid, output: Path, console: Console) -> None:
    """cost.md: minutes of a training of each arm, and where they went."""
    lines = []
    for arm, group in grid.results.items():
        pieces = {name: [r["split_s"].get(name, 0.0) for r in group] for name in _PIECES}
        lines.append(
            {
                "training": arm,
                "minutes": f"{np.mean([r['seconds'] for r in group]) / 60:.1f}",
                **{name: f"{np.mean(s) / 60:.1f}" for name, s in pieces.items()},
            }
        )
    title = "Minutes of a training on one core, mean of the seeds"
    show_table(title, lines, output / "cost.md", console)


def curves(grid: Grid) -> Figure:
    """Success in training, by arm."""
    first: Any = next(iter(grid.trainings.values()))[0]
    objects = first["objects"]
    title = f"Grasping, {objects} object{'s' * (objects != 1)}, {first['observation']}"
    figure = plot_curves(grid.folders, title, column="success")
    figure.axes[0].set_ylim(0, 1.02)
    return figure


def groups_of(group: Sequence[Mapping[str, Sequence[float]]], measure: str) -> Groups:
    """A measure of the episodes of each training."""
    return [measures[measure] for measures in group]


def write_study(
    grid: Grid,
    groups: Mapping[str, Sequence[Mapping[str, Sequence[float]]]],
    output: Path,
    console: Console,
) -> None:
    """cost.md, episodes.csv, curves.csv and curves.png of the arms of a study.

    groups: measures of the episodes of each training, by arm, and of what was not trained
    """
    episodes = []
    first_seed = min(t.run.seed for group in grid.trainings.values() for t in group)
    for arm, group in groups.items():
        success, duration = (groups_of(group, name) for name in ("success", "duration_s"))
        for seed, (s, d) in enumerate(zip(success, duration, strict=True), first_seed):
            pairs = enumerate(zip(s, d, strict=True))
            episodes += [[arm, seed, i, f"{v:g}", f"{t:.6g}"] for i, (v, t) in pairs]
    heading = ["kind", "seed", "episode", "success", "duration_s"]
    write_csv(output / "episodes.csv", heading, episodes)
    write_cost(grid, output, console)
    write_curves(grid, output / "curves.csv", "success")
    save_figure(output / "curves.png", curves(grid))


def read_study(output: Path, console: Console) -> dict[str, list[dict[str, list[float]]]]:
    """Measures of each training, by arm, from episodes.csv alone; writes table.md of them."""
    path = output / "episodes.csv"
    success, duration = (read_groups(path, name) for name in ("success", "duration_s"))
    lines = [
        {
            "training": arm,
            "success": percent(summary(group)),
            "each seed": ", ".join(f"{mean:.1%}" for mean in training_means(group)),
            "duration": f"{summary(duration[arm,]).value:.2f} s",
        }
        for (arm,), group in success.items()
    ]
    counts = [len(group) for group in next(iter(success.values()))]
    title = f"{sum(counts)} held-out episodes each{sketch(len(counts))}"
    show_table(title, lines, output / "table.md", console)
    return {
        arm: [{"success": s, "duration_s": d} for s, d in zip(group, duration[arm,], strict=True)]
        for (arm,), group in success.items()
    }


def compare_success(
    pairs: Mapping[tuple[str, str], tuple[Groups, Groups]], headings: tuple[str, str]
) -> list[dict[str, str]]:
    """A row for each pair: how much more success the first has, in points; Holm over all."""
    means = [[np.array(training_means(group)) for group in pair] for pair in pairs.values()]
    adjusted = holm([differs(mine, other, paired=False) for mine, other in means])
    return [
        {
            headings[0]: first,
            headings[1]: second,
            "success, points": difference(mine, other),
            "p, Holm": p_text(p),
        }
        for ((first, second), (mine, other)), p in zip(pairs.items(), adjusted, strict=True)
    ]
