"""Table 1: QT-Opt grasps in seven ways, blocking and concurrent, beside the paper's (hours).

Rows are arms, called by number. One more row is not trained: the policies of row 2, which learned
in blocking control, run in concurrent control. Writes table.md, table.csv, table.png, what differs
from row 2 (comparison.md), episodes.csv, curves.png, cost.md, config.json and a film of each row.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from rich.console import Console
from rich.progress import track

from midstride.envs.vector import MEASURES
from midstride.learn.trainer import final_episodes
from midstride.measure.statistics import Estimate
from midstride.paper.grasping import curves, difference, percent, summary, write_cost
from midstride.paper.study import (
    VIDEO_SEED,
    GridOptions,
    finish,
    prepare,
    show_table,
    sketch,
    train,
    write_curves,
)
from midstride.policies import load
from midstride.report.curves import save_figure
from midstride.report.film import film_run
from midstride.sweep.disk import write_csv
from midstride.sweep.engine import Grid

# Grasp success, episode duration (s) and action completion, as printed.
PAPER = {
    "1": ("92.72 % ± 1.10", "132.09 ± 5.70", "92.33 % ± 1.48"),
    "2": ("91.53 % ± 1.04", "120.81 ± 9.13", "89.53 % ± 2.27"),
    "3": ("84.11 % ± 7.61", "122.15 ± 14.6", "43.4 % ± 22.41"),
    "4": ("83.77 % ± 9.27", "97.16 ± 6.28", "34.69 % ± 16.80"),
    "5": ("92.55 % ± 4.39", "82.98 ± 5.74", "47.28 % ± 14.25"),
    "6": ("92.70 % ± 1.42", "87.15 ± 4.80", "50.09 % ± 14.25"),
    "7": ("93.49 % ± 1.04", "90.75 ± 4.15", "49.19 % ± 14.98"),
}
BLOCKING = "2: blocking, penalty"
RUN_CONCURRENTLY = "2 run concurrently: blocking, penalty"
_FILMED = 3  # episodes of each row

Measures = Mapping[str, Sequence[float]]  # of the episodes of a training
Rows = Mapping[str, Sequence[Measures]]


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    arms: tuple[str, ...] = ()
    """which rows to train, by number, 1 to 7 (default: all)"""
    video: bool = True
    """film the first training of each row"""


def reproduce(options: Options, console: Console) -> None:
    """Train every row with several seeds, evaluate on held-out objects; beside the paper's."""
    study = prepare("table1", options)
    grid = train(study, options, console)
    rows: dict[str, list[Measures]] = {}
    for arm, results in grid.results.items():
        rows[arm] = [result["measures"] for result in results]
        if arm == BLOCKING:
            rows[RUN_CONCURRENTLY] = run_concurrently(grid, console)
    write_table(rows, options.first_seed, study.output, console)
    limit = time_limit_s(grid, rows)
    show_table(
        "Against row 2, blocking with the penalty",
        [comparison(name, rows, limit) for name in rows],
        study.output / "comparison.md",
        console,
    )
    write_cost(grid, study.output, console)
    write_curves(grid, study.output / "curves.csv", "success")
    save_figure(study.output / "curves.png", curves(grid))
    for arm in grid.folders if options.video else ():
        film_row(grid.folders[arm][0], study.output / f"row{number_of(arm)}", console)
    finish(study, grid, console)


def number_of(row: str) -> str:
    return row.partition(":")[0]


def run_concurrently(grid: Grid, console: Console) -> list[Measures]:
    """Measures of the blocking policies, as they are, where the arm does not wait for them."""
    pairs = list(zip(grid.trainings[BLOCKING], grid.folders[BLOCKING], strict=True))
    found: list[Measures] = []
    for training, folder in track(pairs, "running row 2 concurrently", console=console):
        environment = replace(training.environment, mode="concurrent")  # type: ignore[call-arg]
        episodes = final_episodes(load(folder), environment, training.run)
        found.append({name: [e.measures[name] for e in episodes] for name in MEASURES})
    return found


def film_row(run: Path, path: Path, console: Console) -> None:
    """The film is the run's: made once, as the run is."""
    endings = (".mp4", ".png")
    if not all((run / f"video{ending}").exists() for ending in endings):
        film_run(run, run / "video", _FILMED, VIDEO_SEED, console)
    for ending in endings:
        if (run / f"video{ending}").exists():
            shutil.copyfile(run / f"video{ending}", path.with_suffix(ending))


# --- Tables --------------------------------------------------------------------------------------


def write_table(rows: Rows, first_seed: int, output: Path, console: Console) -> None:
    """table.md with the paper's columns, table.csv, table.png and episodes.csv."""
    lines, records = [], []
    found = {
        row: {name: summary(groups_of(group, name)) for name in MEASURES}
        for row, group in rows.items()
    }
    for row, group in rows.items():
        success, duration, completion = PAPER.get(number_of(row), ("", "", ""))
        lines.append(
            {
                "row": row,
                "success": percent(found[row]["success"]),
                "each seed": ", ".join(f"{np.mean(m['success']):.1%}" for m in group),
                "duration": seconds(found[row]["duration_s"]),
                "completion": percent(found[row]["completion"]),
                "paper: success": success,
                "paper: duration, s": duration,
                "paper: completion": completion,
            }
        )
        for seed, measures in enumerate(group, first_seed):
            for i, values in enumerate(zip(*(measures[name] for name in MEASURES), strict=True)):
                records.append([number_of(row), seed, i, *(f"{value:.6g}" for value in values)])
    first = next(iter(rows.values()))
    count = sum(len(measures["success"]) for measures in first)
    title = f"Table 1: {count} held-out episodes a row{sketch(len(first))}"
    show_table(title, lines, output / "table.md", console)
    write_csv(output / "episodes.csv", ["row", "seed", "episode", *MEASURES], records)
    table = (
        [row, name, *(f"{value:.6g}" for value in astuple(one))]
        for row, measures in found.items()
        for name, one in measures.items()
    )
    write_csv(output / "table.csv", ["row", "measure", "mean", "low", "high"], table)
    save_figure(output / "table.png", plot(found))


def seconds(found: Estimate) -> str:
    spread = "" if np.isnan(found.low) else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.value:.2f} s{spread}"


def groups_of(group: Sequence[Measures], measure: str) -> list[Sequence[float]]:
    return [measures[measure] for measures in group]


def time_limit_s(grid: Grid, rows: Rows) -> float | None:
    """The longest episode of concurrent control: its steps are shorter, the limit is on steps."""
    concurrent = [arm for arm, t in grid.trainings.items() if t[0]["mode"] == "concurrent"]
    concurrent += [RUN_CONCURRENTLY] if RUN_CONCURRENTLY in rows else []
    longest = [max(m["duration_s"]) for arm in concurrent for m in rows[arm]]
    return max(longest) + 1e-6 if longest else None


def comparison(row: str, rows: Rows, limit_s: float | None) -> dict[str, str]:
    """What a row has more or less than row 2; its success in the time of concurrent control."""

    def against(groups: Mapping[str, list[Sequence[float]]], *units: str | float) -> str:
        if row == BLOCKING or BLOCKING not in rows:
            return ""
        scale, unit = units or (1, " s")
        return difference(groups[row], groups[BLOCKING], float(scale), str(unit))

    kept = {name: rows[name] for name in {row, BLOCKING} & rows.keys()}
    success = {name: groups_of(group, "success") for name, group in kept.items()}
    duration = {name: groups_of(group, "duration_s") for name, group in kept.items()}
    of_successes = {name: [_of_successes(m) for m in group] for name, group in kept.items()}
    found = np.concatenate(of_successes[row])
    in_time = {}
    if limit_s is not None:
        soon = [np.array(d) <= limit_s for d in duration[row]]
        share = np.mean([np.array(s) * early for s, early in zip(success[row], soon, strict=True)])
        in_time = {f"success within {limit_s:.1f} s": f"{share:.1%}"}
    return {
        "row": row,
        "success, points": against(success, 100, ""),
        **in_time,
        "duration": against(duration),
        "duration of successes": f"{found.mean():.2f} s" if len(found) else "-",
        "difference": against(of_successes),
    }


def _of_successes(measures: Measures) -> Sequence[float]:
    """Durations of the episodes that grasped something."""
    pairs = zip(measures["duration_s"], measures["success"], strict=True)
    return [duration for duration, success in pairs if success]


def plot(found: Mapping[str, Mapping[str, Estimate]]) -> Figure:
    """Ours with intervals, the paper's beside them where the unit is the same."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    names = list(found)
    places = np.arange(len(names))[::-1]
    titles = {"success": "grasp success", "duration_s": "duration, s", "completion": "completion"}
    for axes, (name, title) in zip(figure.subplots(1, 3, sharey=True), titles.items(), strict=True):
        for row, place in zip(names, places, strict=True):
            one = found[row][name]
            colour = "#4e79a7" if row != RUN_CONCURRENTLY and "blocking" in row else "#f28e2b"
            half = float(np.nan_to_num(one.half))
            axes.errorbar(one.value, place, xerr=half, color=colour, fmt="o", capsize=3)
        if name != "duration_s":
            column = 0 if name == "success" else 2
            paper = {
                place: float(PAPER[number_of(row)][column].split()[0]) / 100
                for row, place in zip(names, places, strict=True)
                if number_of(row) in PAPER
            }
            axes.plot(
                list(paper.values()), list(paper), "kD", ms=3.5, alpha=0.5, label="the paper's"
            )
            axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.legend(fontsize=7)
        axes.grid(axis="x", lw=0.4)
        axes.set_title(title, fontsize=10)
        axes.set_yticks(places, names, fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
