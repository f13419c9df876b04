"""Around Table 1: how the gap depends on latency, and what our additions to QT-Opt are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from midstride.disk.files import write_provenance, write_whole
from midstride.learn.config import GraspConfig
from midstride.measure.evaluate import nested_interval
from midstride.paper.experiments import show_table
from midstride.paper.table1 import (
    curves,
    difference,
    row_config,
    row_name,
    success_interval,
    train_kinds,
    training_seconds,
    write_cost,
)  # fmt: skip
from midstride.report.curves import save_figure
from midstride.timing import parse_s

LATENCIES = ("60ms", "100ms", "160ms", "200ms", "240ms")  # multiples of the controller's 20 ms
_ROWS = (4, 5)  # without knowledge, with vector-to-go
# What is ours and not the paper's, taken away one at a time, from row 5.
ABLATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no auxiliary head": {"auxiliary_weight": 0.0},
    "no shifts": {"shift": 0},
    "newest weights": {"averaged": False},
    "two rounds of search": {"acting_rounds": 2},
}


def latencies(
    base: GraspConfig,
    chosen: Sequence[str],
    seeds: int,
    output: Path,
    runs: Path,
    console: Console,
) -> None:
    """Concurrent control with and without vector-to-go, trained at each latency."""
    if base.latency != GraspConfig().latency:
        raise ValueError("the latencies are what is compared: give --latencies, not --latency")
    for latency in chosen:
        parse_s(latency)
    kinds = {
        f"{latency}, row {row_name(row)}": row_config(replace(base, latency=latency), row)
        for latency in chosen
        for row in _ROWS
    }
    folders, results = train_kinds(kinds, seeds, runs, console)
    _write(kinds, folders, results, base, output, console)
    gaps = []
    for latency in chosen:
        without, knowing = (
            [r["measures"]["success"] for r in results[f"{latency}, row {row_name(row)}"]]
            for row in _ROWS
        )
        gaps.append({"latency": latency, "success, row 5 - row 4": difference(knowing, without)})
    show_table("What vector-to-go is worth, in points", gaps, output / "gap.md", console)
    save_figure(output / "latencies.png", _plot_latencies(chosen, results))
    config = {"base": base.to_dict(), "latencies": list(chosen), "rows": _ROWS, "seeds": seeds}
    write_provenance(output, config, training_seconds(results))
    console.print(f"Saved: [bold]{output}[/bold]")


def ablation(base: GraspConfig, seeds: int, output: Path, runs: Path, console: Console) -> None:
    """Row 5 without each of our additions."""
    if base.observation != "image":
        raise ValueError("the ablation is of what is done with images: leave out --observation")
    row = row_config(base, 5)
    kinds = {name: replace(row, **options) for name, options in ABLATIONS.items()}
    folders, results = train_kinds(kinds, seeds, runs, console)
    _write(kinds, folders, results, base, output, console)
    success = {name: [r["measures"]["success"] for r in group] for name, group in results.items()}
    whole = success.pop("as it is")
    show_table(
        "What taking it away changes, in points",
        [{"training": name, "success": difference(s, whole)} for name, s in success.items()],
        output / "difference.md",
        console,
    )
    config = {"base": base.to_dict(), "row": 5, "ablations": ABLATIONS, "seeds": seeds}
    write_provenance(output, config, training_seconds(results))
    console.print(f"Saved: [bold]{output}[/bold]")


def _write(
    kinds: Mapping[str, GraspConfig],
    folders: Mapping[str, Sequence[Path]],
    results: Mapping[str, Sequence[Mapping[str, Any]]],
    base: GraspConfig,
    output: Path,
    console: Console,
) -> None:
    lines = []
    episodes = ["kind,seed,episode,success,duration_s"]
    for kind, group in results.items():
        success, duration = (
            [r["measures"][name] for r in group] for name in ("success", "duration_s")
        )
        low, high = success_interval(success)
        lines.append(
            {
                "training": kind,
                "success": f"{np.mean(success):.1%} ({low:.1%} to {high:.1%})",
                "each seed": ", ".join(f"{np.mean(s):.1%}" for s in success),
                "duration": f"{np.mean(duration):.2f} s",
            }
        )
        for seed, (s, d) in enumerate(zip(success, duration, strict=True), kinds[kind].seed):
            episodes += [
                f'"{kind}",{seed},{i},{v:g},{t:.6g}'
                for i, (v, t) in enumerate(zip(s, d, strict=True))
            ]
    count = sum(len(r["measures"]["success"]) for r in next(iter(results.values())))
    show_table(f"{count} held-out episodes each", lines, output / "table.md", console)
    write_cost(results, output, console)
    write_whole(output / "episodes.csv", "\n".join(episodes) + "\n")
    save_figure(output / "curves.png", curves(folders, base))


def _plot_latencies(
    chosen: Sequence[str], results: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    places = [1000 * parse_s(latency) for latency in chosen]
    measures = {"success": "grasp success", "duration_s": "duration, s"}
    for axes, (name, title) in zip(figure.subplots(1, 2), measures.items(), strict=True):
        for row in _ROWS:
            groups = [
                [r["measures"][name] for r in results[f"{latency}, row {row_name(row)}"]]
                for latency in chosen
            ]
            means = np.array([np.mean(group) for group in groups])
            spread = success_interval if name == "success" else nested_interval
            bounds = np.array([spread(group) for group in groups]).T
            axes.errorbar(
                places, means, np.abs(bounds - means), marker="o", capsize=3, label=row_name(row)
            )
        axes.set(xlabel="latency, ms", title=title, xticks=places)
        axes.grid(alpha=0.3)
        if name == "success":
            axes.set_ylim(0, 1.02)
            axes.legend(fontsize=8, loc="lower left")
        else:
            axes.set_ylim(bottom=0)
    return figure
