"""The paper's Table 1: seven ways to grasp, trained and evaluated side by side."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from rich.console import Console

from midstride.disk.files import write_provenance, write_whole
from midstride.envs.loop import MEASURES
from midstride.learn.config import GraspConfig
from midstride.learn.scripted_data import name_of as scripted_name
from midstride.learn.train import check
from midstride.measure.evaluate import nested_interval, share_interval
from midstride.paper.experiments import show_table
from midstride.paper.studio import VIDEO_SEED, film_run
from midstride.paper.studio import name_of as run_name
from midstride.report.curves import plot_curves, save_figure
from midstride.scale.local import Job, train_all

STEP_PENALTY = 0.01  # the paper's
_VTG, _PREVIOUS = "vector_to_go", "previous_action"
ROWS: dict[int, dict[str, Any]] = {
    1: {"mode": "blocking"},
    2: {"mode": "blocking", "step_penalty": STEP_PENALTY},
    3: {"mode": "concurrent"},
    4: {"mode": "concurrent", "step_penalty": STEP_PENALTY},
    5: {"mode": "concurrent", "step_penalty": STEP_PENALTY, "knowledge": (_VTG,)},
    6: {"mode": "concurrent", "step_penalty": STEP_PENALTY, "knowledge": (_PREVIOUS,)},
    7: {"mode": "concurrent", "step_penalty": STEP_PENALTY, "knowledge": (_VTG, _PREVIOUS)},
}
_PIECES = (
    "scripted data", "first updates", "physics", "camera", "acting", "replay", "labelling",
    "fitting", "evaluation", "checkpoints",
)  # fmt: skip
# Grasp success, episode duration (s) and action completion, as printed.
PAPER = {
    1: ("92.72 % ± 1.10", "132.09 ± 5.70", "92.33 % ± 1.48"),
    2: ("91.53 % ± 1.04", "120.81 ± 9.13", "89.53 % ± 2.27"),
    3: ("84.11 % ± 7.61", "122.15 ± 14.6", "43.4 % ± 22.41"),
    4: ("83.77 % ± 9.27", "97.16 ± 6.28", "34.69 % ± 16.80"),
    5: ("92.55 % ± 4.39", "82.98 ± 5.74", "47.28 % ± 14.25"),
    6: ("92.70 % ± 1.42", "87.15 ± 4.80", "50.09 % ± 14.25"),
    7: ("93.49 % ± 1.04", "90.75 ± 4.15", "49.19 % ± 14.98"),
}


def row_config(config: GraspConfig, row: int) -> GraspConfig:
    """The configuration of a row of the table: what the row says, the rest as it is."""
    if row not in ROWS:
        raise ValueError(f"Table 1 has rows 1 to {len(ROWS)}, got {row}")
    plain: dict[str, Any] = {"step_penalty": 0.0, "knowledge": ()}
    if ROWS[row]["mode"] == "blocking":  # an action takes as long as it takes
        plain |= {"period": None, "execution": None}
    return replace(config, **{**plain, **ROWS[row]})


def check_rows_decide(config: GraspConfig) -> None:
    """An error if the configuration has something of its own where the rows differ."""
    if (config.mode, config.step_penalty, config.knowledge) != ("concurrent", 0.0, ()):
        raise ValueError(
            "mode, step_penalty and knowledge are what the rows of Table 1 differ in: leave them "
            "out"
        )


def row_name(row: int) -> str:
    options = ROWS[row]
    knows = {_VTG: "VTG", _PREVIOUS: "previous action"}
    parts = [
        str(options["mode"]),
        *(["penalty"] if "step_penalty" in options else []),
        *(knows[name] for name in options.get("knowledge", ())),
    ]
    return f"{row}: {', '.join(parts)}"


def unusual(config: GraspConfig) -> list[str]:
    """What is not as usual, and not what rows differ in: for the name of a folder."""
    usual, parts = GraspConfig(), []
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in ("seed", "mode", "step_penalty", "knowledge"):
            continue
        if value != getattr(usual, field.name):
            named = {"observation": value, "objects": f"{value}-objects"}
            text = named.get(field.name, f"{field.name}_{value}")
            parts.append(re.sub(r"[^\w.-]+", "_", str(text)))
    return parts


def train_kinds(
    kinds: Mapping[str, GraspConfig], seeds: int, runs: Path, console: Console
) -> tuple[dict[str, list[Path]], dict[str, list[dict[str, Any]]]]:
    """Train every kind with several seeds, counting up from its own: folders and results, by kind.

    Side by side on the cores; finished trainings are never run again, whichever study they were
    run for: a folder is named by its configuration. Scripted data is collected once for all kinds
    that can share it.
    """
    for config in kinds.values():
        check(config)
    if len({config.hash for config in kinds.values()}) < len(kinds):
        raise ValueError(
            "two of the trainings to compare are the same: leave out the options they differ in"
        )
    # Those first that collect scripted data; the others find it.
    first = {scripted_name(config): kind for kind, config in reversed(list(kinds.items()))}
    order = sorted(kinds, key=lambda kind: kind not in first.values())
    jobs, scripted = {}, set()
    for seed in range(seeds):
        for kind in order:
            config = replace(kinds[kind], seed=kinds[kind].seed + seed)
            scripted.add(runs / "scripted" / f"{scripted_name(config)}.safetensors")
            jobs[kind, seed] = Job(
                f"{kind}, seed {config.seed}",
                config,
                runs / f"{run_name(config)}-seed{config.seed}-{config.hash}",
                unfinished="resume",
                scripted=runs / "scripted",
            )
    results = dict(zip(jobs, train_all(list(jobs.values()), console), strict=True))
    for path in scripted:  # it has done its work, and can be collected again
        path.unlink(missing_ok=True)
    return (
        {kind: [jobs[kind, seed].folder for seed in range(seeds)] for kind in kinds},
        {kind: [results[kind, seed] for seed in range(seeds)] for kind in kinds},
    )


def curves(folders: Mapping[str, Sequence[Path]], base: GraspConfig) -> Figure:
    """Success in training, by kind."""
    title = f"Grasping, {base.objects} object{'s' * (base.objects > 1)}, {base.observation}"
    figure = plot_curves(folders, title, column="success")
    figure.axes[0].set_ylim(0, 1.02)
    if len(folders) > len(ROWS):  # a long legend must not hide them
        figure.axes[0].legend(fontsize=6.5, loc="lower right")
    return figure


def table1(
    base: GraspConfig,
    rows: tuple[int, ...],
    seeds: int,
    output: Path,
    runs: Path,
    video: bool,
    console: Console,
) -> None:
    """Train every row with several seeds, evaluate on held-out objects; beside the paper's."""
    configs = {row: row_config(base, row) for row in rows}
    kinds = {row_name(row): config for row, config in configs.items()}
    folders, trained = train_kinds(kinds, seeds, runs, console)
    results = {
        (row, seed): result
        for row in rows
        for seed, result in enumerate(trained[row_name(row)], start=base.seed)
    }
    write_table(results, output, console)
    write_cost(trained, output, console)
    save_figure(output / "curves.png", curves(folders, base))
    for row in rows if video else ():
        run = folders[row_name(row)][0]
        if not (run / "video.mp4").exists():  # the film is the run's: made once, as the run is
            film_run(run, 3, VIDEO_SEED, run / "video", console)
        for ending in ("mp4", "png"):
            shutil.copyfile(run / f"video.{ending}", output / f"row{row}.{ending}")
    config = {"base": base.to_dict(), "rows": {r: ROWS[r] for r in rows}, "seeds": seeds}
    write_provenance(output, config, training_seconds(trained))
    console.print(f"Saved: [bold]{output}[/bold]")


def training_seconds(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> float:
    """Of all trainings together, interrupted or not."""
    return float(sum(result["seconds"] for group in results.values() for result in group))


def write_table(
    results: Mapping[tuple[int, int], Mapping[str, Any]], output: Path, console: Console
) -> None:
    """Tables, episodes.csv and table.png from the results of (row, seed).

    table.md: the paper's columns; comparison.md: what row 2, blocking with the penalty, has more or
    less, and how much of the success came within the time that concurrent control has. Its steps
    are shorter, and the limit is on steps.
    """
    rows = sorted({row for row, _ in results})
    seeds = sorted({seed for _, seed in results})
    records = [",".join(("row", "seed", "episode", *MEASURES))]
    lines, comparisons = [], []
    summary: dict[int, dict[str, tuple[float, float, float]]] = {}
    durations = {row: [results[row, s]["measures"]["duration_s"] for s in seeds] for row in rows}
    successes = {row: [results[row, s]["measures"]["success"] for s in seeds] for row in rows}
    of_successes = {
        row: [_of_successes(results[row, s]["measures"]) for s in seeds] for row in rows
    }
    limits = [np.max(durations[row]) for row in rows if ROWS[row]["mode"] == "concurrent"]
    limit = max(limits, default=np.inf) + 1e-6
    for row in rows:
        for seed in seeds:
            measures = results[row, seed]["measures"]
            for i in range(len(measures["success"])):
                values = ",".join(f"{measures[name][i]:.6g}" for name in MEASURES)
                records.append(f"{row},{seed},{i},{values}")
        summary[row] = {}
        for name in MEASURES:
            groups = [results[row, seed]["measures"][name] for seed in seeds]
            spread = success_interval if name == "success" else nested_interval
            summary[row][name] = (float(np.mean(np.concatenate(groups))), *spread(groups))
        by_seed = [np.mean(results[row, seed]["measures"]["success"]) for seed in seeds]
        paper = PAPER[row]
        lines.append(
            {
                "row": row_name(row),
                "success": _percent(summary[row]["success"]),
                "each seed": ", ".join(f"{share:.1%}" for share in by_seed),
                "duration": _seconds(summary[row]["duration_s"]),
                "completion": _percent(summary[row]["completion"]),
                "paper: success": paper[0],
                "paper: duration, s": paper[1],
                "paper: completion": paper[2],
            }
        )
        in_time = np.mean(np.array(successes[row]) * (np.array(durations[row]) <= limit))
        mean_of_successes = np.mean(np.concatenate(of_successes[row]))
        comparisons.append(
            {
                "row": row_name(row),
                "success, points": _against(successes, row, 100, ""),
                **({f"success within {limit:.1f} s": f"{in_time:.1%}"} if limits else {}),
                "duration": _against(durations, row),
                "duration of successes": f"{mean_of_successes:.2f} s",
                "difference": _against(of_successes, row),
            }
        )
    count = sum(len(results[rows[0], seed]["measures"]["success"]) for seed in seeds)
    show_table(f"Table 1: {count} held-out episodes a row", lines, output / "table.md", console)
    title = "Against row 2, blocking with the penalty"
    show_table(title, comparisons, output / "comparison.md", console)
    write_whole(output / "episodes.csv", "\n".join(records) + "\n")
    table = ["row,measure,mean,low,high"]
    table += [
        f'"{row_name(row)}",{name},' + ",".join(f"{value:.6g}" for value in values)
        for row, measures in summary.items()
        for name, values in measures.items()
    ]
    write_whole(output / "table.csv", "\n".join(table) + "\n")
    save_figure(output / "table.png", _plot(summary))


def success_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Of a share over trainings: at least as wide as if all episodes were of one training."""
    low, high = nested_interval(groups)
    pooled_low, pooled_high = share_interval(np.concatenate(groups))
    return min(low, pooled_low), max(high, pooled_high)


def _of_successes(measures: Mapping[str, Sequence[float]]) -> list[float]:
    """Durations of the episodes that grasped something."""
    pairs = zip(measures["duration_s"], measures["success"], strict=True)
    return [duration for duration, success in pairs if success] or [float("nan")]


def write_cost(
    results: Mapping[str, Sequence[Mapping[str, Any]]], output: Path, console: Console
) -> None:
    """cost.md: minutes of a training of each kind, and where they went."""
    lines = []
    for kind, group in results.items():
        pieces = {name: [r["split_s"].get(name, 0.0) for r in group] for name in _PIECES}
        lines.append(
            {
                "training": kind,
                "minutes": f"{np.mean([r['seconds'] for r in group]) / 60:.1f}",
                **{name: f"{np.mean(s) / 60:.1f}" for name, s in pieces.items()},
            }
        )
    title = "Minutes of a training on one core, mean of the seeds"
    show_table(title, lines, output / "cost.md", console)


def _against(
    values: Mapping[int, list[list[float]]], row: int, scale: float = 1, unit: str = " s"
) -> str:
    """How much more than blocking control with the penalty."""
    if row == 2 or 2 not in values:
        return ""
    return difference(values[row], values[2], scale, unit)


def difference(
    mine: Sequence[Sequence[float]],
    other: Sequence[Sequence[float]],
    scale: float = 100,
    unit: str = "",
) -> str:
    """How much more than the other, with its interval: in points unless told otherwise."""
    low, high = (scale * bound for bound in nested_interval(mine, other))
    mean = scale * (np.mean(np.concatenate(mine)) - np.mean(np.concatenate(other)))
    digits = 1 if scale > 1 else 2
    return f"{mean:+.{digits}f}{unit} ({low:+.{digits}f} to {high:+.{digits}f})"


def _percent(values: tuple[float, float, float]) -> str:
    mean, low, high = values
    return f"{mean:.1%} ({low:.1%} to {high:.1%})"


def _seconds(values: tuple[float, float, float]) -> str:
    mean, low, high = values
    return f"{mean:.2f} s ({low:.2f} to {high:.2f})"


def _plot(summary: Mapping[int, Mapping[str, tuple[float, float, float]]]) -> Figure:
    """Ours with intervals, the paper's beside them where the unit is the same."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    names = [row_name(row) for row in summary]
    places = np.arange(len(names))[::-1]
    titles = {"success": "grasp success", "duration_s": "duration, s", "completion": "completion"}
    for axes, (name, title) in zip(figure.subplots(1, 3, sharey=True), titles.items(), strict=True):
        values = np.array([summary[row][name] for row in summary])
        errors = np.abs(values[:, 1:] - values[:, :1]).T
        for k, (value, _, _) in enumerate(values):
            colour = "#4e79a7" if "blocking" in names[k] else "#f28e2b"
            axes.errorbar(
                value, places[k], xerr=errors[:, k : k + 1], color=colour, fmt="o", capsize=3
            )
        if name != "duration_s":
            column = 0 if name == "success" else 2
            paper = [float(PAPER[row][column].split()[0]) / 100 for row in summary]
            axes.plot(paper, places, "kD", ms=3.5, alpha=0.5, label="the paper's")
            axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.legend(fontsize=7)
        axes.grid(axis="x", lw=0.4)
        axes.set_title(title, fontsize=10)
        axes.set_yticks(places, names, fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
