"""How much data an adaptation needs, and how much noise in it.

Policies of results/adapt/policies are adapted to one control step of latency from data alone (no
rounds): from 500 to 20,000 recorded steps with graded noise; and from 10,000 steps without noise,
with one level of it, and graded. Expected, before the runs: with less than 2,000 steps students
fail; without noise they fail however many steps there are, on the tasks on which a fall ends the
episode, because a student that errs leaves what was recorded.

Each cell is a line of cells.jsonl; what is there is not made again. Writes table.md, data.png and
config.json.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from midstride.disk.files import write_provenance
from midstride.measure.statistics import half_width
from midstride.paper.adapt import AdaptOptions, complete, policies_of
from midstride.paper.study import show_table
from midstride.report.curves import save_figure
from midstride.scale.words import label, saved
from midstride.settings import Range

STEPS = (500, 1_000, 2_000, 5_000, 10_000, 20_000)
NOISES: dict[str, tuple[float, ...]] = {
    "none": (0.0,),
    "0.1": (0.1,),
    "0.4": (0.4,),
}
NOISE_STEPS = 10_000  # recorded with each of these


@dataclass(frozen=True)
class Options(AdaptOptions):
    """Options of the experiment."""

    tasks: tuple[str, ...] = ("double-pendulum", "half-cheetah")
    """which tasks, by the names of their policies"""
    updates: Annotated[int, Range(1)] = 10_000
    """gradient steps of each student"""
    output: str = "results/adapt-data"
    """folder for the table, the picture and the configuration"""


def reproduce(options: Options, console: Console) -> None:
    """Adapt from each kind of data; write the table and the picture."""
    started, output = time.perf_counter(), Path(options.output)
    cells, new = complete(list(_wanted(options)), options, output, console)
    show_table("Adapted from data alone, at one step", table(cells), output / "table.md", console)
    save_figure(output / "data.png", plot(cells))
    if new:
        write_provenance(output, options.to_dict(), time.perf_counter() - started)
    console.print(saved(output))


def _wanted(options: Options) -> Iterator[dict[str, Any]]:
    kinds: list[dict[str, Any]] = [{"steps": steps} for steps in STEPS]
    kinds += [{"steps": NOISE_STEPS, "noise": list(levels)} for levels in NOISES.values()]
    how = {"updates": options.updates, "rounds": 0, "episodes": options.episodes}
    for kind in kinds:
        for policy in policies_of(options):
            yield {"asked": {**policy, "latency": "1", **kind, **how}}


def table(cells: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """A line for each kind of data: what students keep, mean over policies."""
    rows = []
    for steps, noise in dict.fromkeys(map(_kind, cells)):
        row = {"steps": f"{steps:,}", "noise": noise}
        for task in dict.fromkeys(cell["figures"]["task"] for cell in cells):
            kept = _kept(cells, task, steps, noise)
            spread = f" ± {half_width(kept):.2f}" if len(kept) > 1 else ""
            row[f"{task} ({len(kept)} policies)"] = f"{kept.mean():.2f}{spread}"
        rows.append(row)
    return rows


def _kind(cell: dict[str, Any]) -> tuple[int, str]:
    levels = tuple(cell["asked"].get("noise", ()))
    noise = next((name for name, known in NOISES.items() if known == levels), "graded")
    return cell["asked"]["steps"], noise


def _kept(cells: Sequence[dict[str, Any]], task: str, steps: int, noise: str) -> Any:
    return np.array(
        [
            cell["figures"]["data_alone"]
            for cell in cells
            if cell["figures"]["task"] == task and _kind(cell) == (steps, noise)
        ]
    )


def plot(cells: Sequence[dict[str, Any]]) -> Figure:
    """Left: over recorded steps. Right: over kinds of noise."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    noises = ["none", "0.1", "0.4", "graded"]
    for k, task in enumerate(dict.fromkeys(cell["figures"]["task"] for cell in cells)):
        for axes, points in (
            (left, [(steps, steps, "graded") for steps in STEPS]),
            (right, [(i, NOISE_STEPS, noise) for i, noise in enumerate(noises)]),
        ):
            found = [(x, _kept(cells, task, steps, noise)) for x, steps, noise in points]
            found = [(x, kept) for x, kept in found if len(kept)]
            means = [float(kept.mean()) for _, kept in found]
            axes.plot([x for x, _ in found], means, "o-", color=f"C{k}", label=label(task))
            for x, kept in found:
                axes.plot([x] * len(kept), kept, ".", color=f"C{k}", alpha=0.4)
    left.set_xscale("log")
    left.set(xlabel="steps recorded, graded noise", ylabel="kept of frozen")
    right.set_xticks(range(len(noises)), noises)
    right.set(xlabel=f"noise in {NOISE_STEPS:,} steps")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    left.legend()
    return figure
