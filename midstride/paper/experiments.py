"""Experiments of several trainings: what latency costs, and what knowledge gives back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

from midstride.disk.files import write_provenance, write_whole
from midstride.disk.runs import read_metrics, read_result
from midstride.envs.loop import MEASURES
from midstride.learn.config import Config
from midstride.measure.evaluate import evaluate, share_interval
from midstride.policies import load
from midstride.report.curves import plot_curves, save_figure
from midstride.report.page import REPORT_FILES, write_report
from midstride.scale.local import Job, train_all
from midstride.sweep.disk import SWEEP, TABLE
from midstride.sweep.engine import Engine, run_sweep
from midstride.sweep.spec import read_spec
from midstride.timing import parse_latency, parse_s

Options = Mapping[str, Any]
Jobs = dict[str, list[Job]]  # by kind, one per seed


def _train_kinds(
    base: Config, kinds: Mapping[str, Options], seeds: int, runs: Path, console: Console
) -> tuple[Jobs, dict[str, list[dict[str, Any]]]]:
    """Every kind of agent, several seeds: the jobs and their results, by kind."""
    jobs = {
        kind: [
            Job(
                f"{kind}, seed {seed}",
                replace(base, **options, seed=seed),
                runs / kind.replace(" ", "_") / f"seed{seed}",
                unfinished="resume",
            )
            for seed in range(seeds)
        ]
        for kind, options in kinds.items()
    }
    results = train_all([job for group in jobs.values() for job in group], console)
    return jobs, {kind: results[i * seeds : (i + 1) * seeds] for i, kind in enumerate(jobs)}


def show_table(title: str, rows: Sequence[Mapping[str, str]], path: Path, console: Console) -> None:
    """A table on the console and as Markdown; the first column is text, the others numbers."""
    headings = list(rows[0])
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == headings[0] else "right")
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    for row in rows:
        table.add_row(*row.values())
        lines.append(list(row.values()))
    console.print(table)
    write_whole(path, "".join(f"| {' | '.join(cells)} |\n" for cells in lines))


# --- Awareness: one latency, with and without knowledge of what is in flight ---------------------

AWARENESS: dict[str, Options] = {
    "blocking": {"period": "50ms"},
    "unaware": {"latency": "50ms", "execution": "0"},
    "vector-to-go": {"latency": "50ms", "execution": "0", "knowledge": ("vector_to_go",)},
    "previous action + t_AS": {
        "latency": "50ms",
        "execution": "0",
        "knowledge": ("previous_action", "selection_time"),
    },
}


def awareness(base: Config, seeds: int, output: Path, runs: Path, console: Console) -> None:
    """Blocking control against 50 ms of latency: table, curves, every return."""
    started = time.perf_counter()
    jobs, results = _train_kinds(base, AWARENESS, seeds, runs, console)
    means = {kind: [r["mean_return"] for r in group] for kind, group in results.items()}
    blocking = float(np.mean(means["blocking"]))
    rows = [
        {
            "agent": kind,
            "mean": f"{np.mean(values):.0f}",
            "of blocking": f"{np.mean(values) / blocking:.2f}",
            "each seed": ", ".join(f"{v:.0f}" for v in values),
        }
        for kind, values in means.items()
    ]
    title = f"{base.task}, {base.agent}: return of 1000 after {base.steps:,} steps"
    show_table(title, rows, output / "table.md", console)
    returns = ["kind,seed,episode,return"]
    curves = ["kind,seed,steps,evaluation"]
    for kind, group in results.items():
        for seed, (job, result) in enumerate(zip(jobs[kind], group, strict=True)):
            returns += [f"{kind},{seed},{i},{value!r}" for i, value in enumerate(result["returns"])]
            curves += [
                f"{kind},{seed},{line['steps']},{line['evaluation']!r}"
                for line in read_metrics(job.folder)
            ]
    write_whole(output / "returns.csv", "\n".join(returns) + "\n")
    write_whole(output / "curves.csv", "\n".join(curves) + "\n")
    groups = {kind: [job.folder for job in group] for kind, group in jobs.items()}
    title = f"{base.task.capitalize()} swing-up, {base.agent}, {seeds} seeds (mean and range)"
    save_figure(output / "curves.png", plot_curves(groups, title))
    config = {"base": base.to_dict(), "kinds": AWARENESS, "seeds": seeds}
    write_provenance(output, config, time.perf_counter() - started)
    console.print(f"Saved: [bold]{output}[/bold]")


# --- Latencies: one policy for all of them -------------------------------------------------------

LATENCIES = ("0", "5ms", "10ms", "25ms", "50ms")
_DRAWN = {"latency": f"episode:{','.join(LATENCIES)}", "period": "50ms"}
ONE_FOR_ALL: dict[str, Options] = {
    "unaware": _DRAWN,
    "vector-to-go": {**_DRAWN, "knowledge": ("vector_to_go",)},
    "vector-to-go + t_AS": {**_DRAWN, "knowledge": ("selection_time", "vector_to_go")},
    "previous action + t_AS": {**_DRAWN, "knowledge": ("previous_action", "selection_time")},
}
EPISODES = 64  # of each policy at each latency


def latencies(base: Config, seeds: int, output: Path, runs: Path, console: Console) -> None:
    """Policies trained with a latency drawn for every episode, evaluated at each of them."""
    started = time.perf_counter()
    jobs, _ = _train_kinds(base, ONE_FOR_ALL, seeds, runs, console)
    totals: dict[str, dict[str, list[list[float]]]] = {}
    records = ["kind,seed,latency,episode,return"]
    work = [(kind, latency) for kind in jobs for latency in LATENCIES]
    for kind, latency in track(work, "evaluating", console=console):
        found = [
            [
                e.total
                for e in evaluate(load(job.folder), job.config, EPISODES, parse_latency(latency))
            ]
            for job in jobs[kind]
        ]
        totals.setdefault(kind, {})[latency] = found
        records += [
            f"{kind},{seed},{latency},{i},{value!r}"
            for seed, values in enumerate(found)
            for i, value in enumerate(values)
        ]
    rows = [
        {"agent": kind}
        | {
            latency: f"{np.mean(found):.0f} ({', '.join(f'{np.mean(f):.0f}' for f in found)})"
            for latency, found in by_latency.items()
        }
        for kind, by_latency in totals.items()
    ]
    title = f"{base.task}, {base.agent}, latency drawn per episode: return at each latency"
    show_table(title, rows, output / "table.md", console)
    write_whole(output / "returns.csv", "\n".join(records) + "\n")
    save_figure(output / "latencies.png", _plot_latencies(totals, title))
    config = {"base": base.to_dict(), "kinds": ONE_FOR_ALL, "seeds": seeds, "episodes": EPISODES}
    write_provenance(output, config, time.perf_counter() - started)
    console.print(f"Saved: [bold]{output}[/bold]")


def _plot_latencies(totals: Mapping[str, Mapping[str, list[list[float]]]], title: str) -> Figure:
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    milliseconds = [1000 * parse_s(text) for text in LATENCIES]
    for kind, by_latency in totals.items():
        means = np.array([[np.mean(f) for f in by_latency[text]] for text in LATENCIES])
        (line,) = axes.plot(milliseconds, means.mean(axis=1), marker="o", label=kind)
        low, high = means.min(axis=1), means.max(axis=1)
        axes.fill_between(milliseconds, low, high, color=line.get_color(), alpha=0.2, lw=0)
    axes.set(xlabel="latency (ms)", ylabel="return (mean and range of seeds)", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


# --- Figures 2a and 2b: every trial of a sweep ---------------------------------------------------


def figure(
    name: str, trials: int, engine: Engine, output: Path, folder: Path, console: Console
) -> None:
    """A sweep that comes with midstride: its table, report and plots, without the runs."""
    spec = read_spec(name)
    rows = run_sweep(spec, trials, folder, engine, console)
    write_report(folder, console)
    output.mkdir(parents=True, exist_ok=True)
    for file in (SWEEP, TABLE, *REPORT_FILES):
        if (folder / file).exists():
            shutil.copyfile(folder / file, output / file)
    results = [read_result(path.parent) for path in folder.glob("trials/*/*/result.json")]
    seconds = sum(result["seconds"] for result in results if result is not None)
    config = {"specification": spec.source, "draws": trials, "trials": len(rows)}
    write_provenance(output, config, seconds)  # of all trials, one after another
    console.print(f"Saved: [bold]{output}[/bold]")


# --- Scripted: what grasping looks like without learning -----------------------------------------

_SCRIPTED_ENVS = 50


def scripted(episodes: int, output: Path, console: Console) -> None:
    """Scripted grasping in both modes on all objects: success, duration, completion, jerk."""
    from midstride.tasks.grasp.env import GraspVectorEnv
    from midstride.tasks.grasp.objects import OBJECT_SETS

    started = time.perf_counter()
    each = -(-episodes // _SCRIPTED_ENVS)
    work: list[tuple[Any, str, str]] = [
        (mode, policy, objects)
        for mode in ("blocking", "concurrent")
        for policy in ("privileged", "blind")
        for objects in OBJECT_SETS
    ]
    rows, records = [], [",".join(("mode", "policy", "objects", *MEASURES))]
    for mode, policy, objects in track(work, "grasping", console=console):
        env = GraspVectorEnv(_SCRIPTED_ENVS, mode=mode, observation="state", object_set=objects)
        found = _grasp_episodes(env, policy, each)
        for values in zip(*found.values(), strict=True):
            numbers = ",".join(f"{value:.6g}" for value in values)
            records.append(f"{mode},{policy},{objects},{numbers}")
        low, high = share_interval(found["success"])
        rows.append(
            {
                "mode, policy, objects": f"{mode}, {policy}, {objects}",
                "success": f"{found['success'].mean():.1%}",
                "95 % interval": f"{low:.1%} to {high:.1%}",
                "duration": f"{found['duration_s'].mean():.2f} s",
                "completion": f"{found['completion'].mean():.0%}",
                "until the switch": f"{found['completion_until_switch'].mean():.0%}",
                "jerk": f"{found['jerk'].mean():.0f} m/s³",
            }
        )
    title = f"Scripted grasping, 3 objects, {each * _SCRIPTED_ENVS} episodes each"
    show_table(title, rows, output / "table.md", console)
    write_whole(output / "episodes.csv", "\n".join(records) + "\n")
    config = {"episodes": each * _SCRIPTED_ENVS, "latency_s": 0.1, "period_s": 0.3, "objects": 3}
    write_provenance(output, config, time.perf_counter() - started)
    console.print(f"Saved: [bold]{output}[/bold]")


def _grasp_episodes(env: Any, policy: str, each: int) -> dict[str, Any]:
    """The first `each` episodes of every environment: as many long ones as there are."""
    from midstride.tasks.grasp import scripted

    rng = np.random.default_rng(0)
    env.reset(seed=0)
    done = np.zeros(env.num_envs, int)
    found: list[list[float]] = []
    while (done < each).any():
        if policy == "privileged":
            action = scripted.privileged(env.world, env.next_latency_ticks())
        else:
            action = scripted.blind(env.world, env.steps_taken, rng)
        _, _, terminated, truncated, info = env.step(action)
        for i in np.flatnonzero((terminated | truncated) & (done < each)):
            found.append([float(info[name][i]) for name in MEASURES])
            done[i] += 1
    return dict(zip(MEASURES, np.array(found).T, strict=True))
