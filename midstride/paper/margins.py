"""Margins: how much latency policies of others stand; returns of ours, trained three ways.

Every Stable-Baselines3 zip in results/margins/policies is measured in the environment that it was
trained in: table.md, margins.csv, margins.png. A margin is a share of what a policy has at latency
0, which says little of one that was trained at another: of DQN on Cartpole and Pendulum, trained at
latency 0, and at 50 ms without and with knowledge of the action in flight (one training each: a
sketch), ours.md has the returns at each latency side by side. Each policy's own picture and page
are kept in runs/margins.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from rich.console import Console

from midstride.disk.files import write_provenance
from midstride.disk.read import read_json_lines
from midstride.latency import OnScaleOf
from midstride.latency_text import read_latency
from midstride.measure.evaluate import evaluate_in
from midstride.measure.finding import NothingToKeep
from midstride.measure.margin import Margin, MarginSettings, margin, with_times
from midstride.measure.play import Loads
from midstride.measure.statistics import half_width
from midstride.paper.study import GridOptions, prepare, show_table, train
from midstride.policies import WEIGHTS, load
from midstride.report.curves import save_figure
from midstride.report.margin import read_margin, was_asked, write_margin
from midstride.report.margins import plot_margins, row
from midstride.scale.words import plain, saved
from midstride.settings import Range, Settings
from midstride.sweep.disk import write_csv
from midstride.tasks.registry import environment_from

ARMS = {"blocking": "trained blocking", "unaware": "unaware at 50 ms",
        "previous action + t_AS": "knowing at 50 ms"}  # fmt: skip
# CartPole's step, which it does not say by the name that others have.
STEPS = {"CartPole-v1": "20ms"}
LATENCIES = ("0ms", "25ms", "50ms", "75ms", "100ms", "150ms")


@dataclass(frozen=True)
class Options(Settings):
    """Options of the experiment."""

    kind: ClassVar[str] = "option"

    policies: str = "results/margins/policies"
    """folder of zips, with trained.jsonl, which says where each was trained"""
    tasks: tuple[str, ...] = ("cartpole", "pendulum")
    """tasks of ours that policies are trained on; none with --tasks and nothing after it"""
    episodes: Annotated[int, Range(2)] = 80
    """episodes at one latency at most"""
    jobs: Annotated[int, Range(1, 256)] = 2
    """processes that play episodes side by side"""
    output: str = "results/margins"
    """folder for the table, the picture and the configuration"""
    runs: str = "runs"
    """folder for trainings, and for each policy's page"""


def reproduce(options: Options, console: Console) -> None:
    """Measure every policy, write the table and the picture."""
    started, output = time.perf_counter(), Path(options.output)
    found: dict[str, Margin] = {}
    without: list[str] = []  # a margin
    for name, policy, environment, asked in of_others(options):
        try:
            found[name] = measured(name, policy, environment, asked, options, console)
        except NothingToKeep as error:
            console.print(plain(f"{name}: {error}"))
            without.append(name)
    if not found and not options.tasks:
        raise ValueError(f"there is no policy in {options.policies}, and no task was asked for")
    if found:
        rows = [row(name, one) for name, one in found.items()]
        none = dict.fromkeys(rows[0], "-") | {"stands latency": "nothing to keep"}
        rows += [{**none, "policy": name} for name in without]
        show_table("How much latency policies stand", rows, output / "table.md", console)
        heading = ["policy", "axis", "at", "episodes", "mean", "low", "high", "kept", "jerk",
                   "changes_per_s"]  # fmt: skip
        write_csv(output / "margins.csv", heading, _points(found))
        save_figure(output / "margins.png", plot_margins(found))
    if options.tasks:
        rows = [line for task in options.tasks for line in ours(task, options, console)]
        show_table("Ours: return at each latency", rows, output / "ours.md", console)
    write_provenance(output, options.to_dict(), time.perf_counter() - started)
    console.print(saved(output))


def of_others(options: Options) -> Iterator[tuple[str, Loads, Any, MarginSettings]]:
    """Name, policy, environment and question of each."""
    examples = str(Path("examples").resolve())
    if examples not in sys.path:
        sys.path.insert(0, examples)  # where our environment of one's own is
    for name, env in trained_in(Path(options.policies)).items():
        policy = Loads(load, {"source": str(Path(options.policies) / f"{name}.zip")})
        is_ours = env.startswith("own_environment:")  # a file may name no other module to import
        environment = environment_from({"task": f"gym:{env}"}, trust=is_ours)
        yield (
            name,
            policy,
            environment,
            MarginSettings(episodes=options.episodes, step=STEPS.get(env)),
        )


def ours(task: str, options: Options, console: Console) -> Iterator[dict[str, str]]:
    """Lines of a table: what policies of ours get at each latency, the period as in training."""
    common: dict[str, Any] = {"set": (f"task={task}",), "arms": tuple(ARMS), "seeds": 1}
    trainings = GridOptions(runs=options.runs, **common)
    grid = train(prepare("awareness", trainings), trainings, console)
    for arm, text in ARMS.items():
        environment = with_times(grid.trainings[arm][0].environment, None, None, None)
        trained, line = read_latency(environment.latency), {"policy": f"dqn-{task}, {text}"}
        for latency in LATENCIES:
            model = OnScaleOf(trained, read_latency(latency))
            there = replace(environment, latency=model)
            played = evaluate_in(load(grid.folders[arm][0]), there, options.episodes)
            returns = np.array([episode.total for episode in played])
            line[latency] = f"{returns.mean():.0f} ± {half_width(returns):.0f}"
        yield line


def trained_in(folder: Path) -> dict[str, str]:
    """The environment of each zip in a folder."""
    lines = read_json_lines(folder / "trained.jsonl", {"name": str, "env": str}, object)
    found = {line["name"]: line["env"] for line in lines}
    return {name: env for name, env in found.items() if (folder / f"{name}.zip").exists()}


def measured(
    name: str,
    policy: Loads,
    environment: Any,
    asked: MarginSettings,
    options: Options,
    console: Console,
) -> Margin:
    """The margin of a policy, unless the same was found before."""
    folder = Path(options.runs) / "margins" / name.replace(", ", "-").replace(" ", "_")
    about = {**asked.to_dict(), "environment": environment.to_dict(), **policy.arguments}
    about["sha256"] = _content(Path(policy.arguments["source"]))
    about = json.loads(json.dumps(about))  # as a file has it
    if was_asked(folder, about):
        return read_margin(folder)[1]
    found = margin(policy, environment, asked, options.jobs)
    write_margin(folder, found, name, about)
    console.print(f"{name}: {found.episodes} episodes, {found.seconds:.0f} s")
    return found


def _content(source: Path) -> str:
    """What a policy is, wherever it lies."""
    file = source / WEIGHTS if source.is_dir() else source
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _points(found: Mapping[str, Margin]) -> Iterator[list[Any]]:
    for name, one in found.items():
        for axis, line in (("delay", one.delay), ("jitter", one.jitter), ("loss", one.loss)):
            for p in line.points if line is not None else ():
                yield [name, axis, f"{p.at:.6g}", p.episodes, p.mean, p.low, p.high, p.kept, p.jerk,
                       p.changes_per_s]  # fmt: skip
