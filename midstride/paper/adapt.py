"""Adapt: policies of others, made fit for latency from steps of the frozen world.

Every policy in results/adapt/policies (8 trainings of each task, by examples/train_experts.py) runs
without latency, at a latency as it is, and adapted to it: from data alone, and with rounds in which
the student acts at the latency where that was not enough. Beside them, where there are some
(examples/train_experts.py --at): trained at the latency, knowing what is in flight. Latencies: 1,
2, 3 and 5 control steps, half a step, and one that varies from 0.6 to 1.4 steps from decision to
decision.

Written down before the runs. Expected: at one and at two steps, on at least five tasks on which the
policies as they are keep less than half of what they have without latency (mean over policies), the
adapted ones keep at least 90 % (mean over policies; 8 of each). Where latency varies, less: what is
right at the switch is then not known at capture. A policy that is far from trained, and a task that
is not deterministic, may not be cured.

Each cell is a line of cells.jsonl; what is there is not made again. Writes table.md, cells.csv,
adapt.png and config.json.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from midstride.disk.files import write_provenance, write_whole
from midstride.disk.read import read_json_lines
from midstride.learn.adapted import AdaptSettings
from midstride.measure.statistics import half_width
from midstride.paper.study import FEW, show_table
from midstride.report.adapt_study import plot_study
from midstride.report.curves import save_figure
from midstride.scale.words import plain, saved
from midstride.settings import Range, Settings
from midstride.sweep.disk import write_csv

LATENCIES = ("1", "2", "0.5", "jitter", "3", "5")  # in control steps
SPREAD = 0.4  # of jitter around one step, in steps
HURT, CURED = 0.5, 0.9  # kept: less than, at least
TASKS_CURED = 5


@dataclass(frozen=True)
class AdaptOptions(Settings):
    """Options of experiments that adapt the policies of a folder."""

    kind: ClassVar[str] = "option"

    tasks: tuple[str, ...] = ()
    """which tasks, by the names of their policies (default: all that there are)"""
    seeds: tuple[int, ...] = tuple(range(8))
    """which of a task's policies, by the seeds of their trainings"""
    updates: Annotated[int, Range(1)] = 20_000
    """gradient steps of each student"""
    episodes: Annotated[int, Range(2)] = 20
    """episodes in which each is measured"""
    jobs: Annotated[int, Range(1, 256)] = 2
    """policies that are adapted at once"""
    policies: str = "results/adapt/policies"
    """folder of policies, with trained.jsonl, which says where each was trained"""
    show: bool = False
    """make nothing: show what was made before"""


@dataclass(frozen=True)
class Options(AdaptOptions):
    """Options of the experiment."""

    latencies: tuple[str, ...] = LATENCIES
    """in control steps; jitter varies from 0.6 to 1.4 of them"""
    steps: Annotated[int, Range(1)] = 20_000
    """steps of the frozen world that are recorded with each policy"""
    rounds: Annotated[int, Range(0)] = 3
    """rounds at most with latency"""
    output: str = "results/adapt"
    """folder for tables, the picture and the configuration"""


def reproduce(options: Options, console: Console) -> None:
    """Adapt every policy to every latency, write the table and the picture."""
    started, output = time.perf_counter(), Path(options.output)
    chosen, missing = complete(list(_wanted(options)), options, output, console)
    rows = table(chosen, trained_at(Path(options.policies) / "trained_at.jsonl"))
    show_table("Adapted to latency", rows, output / "table.md", console)
    console.print(plain(claim(chosen)))
    write_whole(output / "claim.md", claim(chosen) + "\n")
    write_csv(output / "cells.csv", list(chosen[0]["figures"]), (
        [cell["figures"][name] for name in chosen[0]["figures"]] for cell in chosen
    ))  # fmt: skip
    save_figure(output / "adapt.png", plot_study([cell["figures"] for cell in chosen]))
    if missing:
        write_provenance(output, options.to_dict(), time.perf_counter() - started)
    console.print(saved(output))


def complete(
    wanted: Sequence[dict[str, Any]], options: AdaptOptions, output: Path, console: Console
) -> tuple[list[dict[str, Any]], int]:
    """The cells that are wanted, those that were not there made; and how many these were."""
    if not wanted:
        raise ValueError(f"there is no such policy in {options.policies}: train some first")
    cells = read_cells(output / "cells.jsonl")
    if options.show:
        wanted = [cell for cell in wanted if _key(cell) in cells]
        if not wanted:
            raise ValueError(f"nothing of it was made before in {output}: leave out --show")
    missing = [cell for cell in wanted if _key(cell) not in cells]
    for found in made(missing, options.policies, options.jobs, console):
        cells[_key(found)] = found
        text = "".join(json.dumps(cell, allow_nan=False) + "\n" for cell in cells.values())
        write_whole(output / "cells.jsonl", text)
    return [cells[_key(cell)] for cell in wanted], len(missing)


def policies_of(options: AdaptOptions) -> list[dict[str, Any]]:
    """Name and environment of the policies that are asked for."""
    needed = {"name": str, "env": str, "seed": int}
    lines = read_json_lines(Path(options.policies) / "trained.jsonl", needed, object)
    return [
        {"policy": line["name"], "env": line["env"]}
        for line in lines
        if line["seed"] in options.seeds
        and (not options.tasks or line["name"].rpartition("-")[0] in options.tasks)
    ]


def read_cells(path: Path) -> dict[str, Any]:
    """What was made before, by what it is."""
    if not path.exists():
        return {}
    lines = read_json_lines(path, {"asked": dict, "figures": dict}, object)
    return {_key(line): line for line in lines}


def _key(cell: Any) -> str:
    return json.dumps(cell["asked"], sort_keys=True)


def _wanted(options: Options) -> Iterator[dict[str, Any]]:
    """The cells that are asked for: all policies at the first latency, then at the next."""
    how = {name: getattr(options, name) for name in ("steps", "updates", "rounds", "episodes")}
    for latency in options.latencies:
        for policy in policies_of(options):
            yield {"asked": {**policy, "latency": latency, **how}}


def made(
    cells: Sequence[dict[str, Any]], policies: str, jobs: int, console: Console
) -> Iterator[dict[str, Any]]:
    """Cells as they are made, in processes side by side."""
    if not cells:
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, max_tasks_per_child=1)
    try:
        futures = [pool.submit(adapt_one, cell["asked"], policies) for cell in cells]
        for k, future in enumerate(as_completed(futures), start=1):
            found = future.result()
            figures = found["figures"]
            console.print(
                f"{k}/{len(cells)} {figures['policy']} at {figures['latency']}: kept "
                f"{figures['as_it_is']:.0%}, adapted {figures['data_alone']:.0%}, with rounds "
                f"{figures['adapted']:.0%} ({figures['seconds']:.0f} s)"
            )
            yield found
    finally:
        # Who stops us does not want to wait for cells that are half made.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)


def adapt_one(asked: dict[str, Any], policies: str) -> dict[str, Any]:
    """One cell: a policy at a latency."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from midstride.latency import Fixed, Jittered
    from midstride.learn.adapt import adapt
    from midstride.measure.margin import MarginSettings, place_of
    from midstride.policies import load
    from midstride.tasks.registry import environment_from

    sys.path.insert(0, str(Path("examples").resolve()))  # our environment of one's own
    source = Path(policies) / asked["policy"]
    policy = load(source if source.is_dir() else source.with_suffix(".zip"))
    env = asked["env"]
    task = env if env.startswith("dmc:") else f"gym:{env}"
    trust = env.startswith("own_environment:")  # a file may name no other module to import
    environment: Any = environment_from({"task": task}, trust=trust)
    timing = place_of(environment, MarginSettings()).timing()
    period_s, tick_s = timing.longest_period_s, timing.tick_s
    if asked["latency"] == "jitter":
        latency: Any = Jittered(period_s, SPREAD * period_s)
    else:
        ticks = round(float(asked["latency"]) * period_s / tick_s)
        latency = Fixed(ticks * tick_s)
    how = {name: asked[name] for name in ("steps", "updates", "rounds", "episodes")}
    if "noise" in asked:
        how["noise"] = tuple(asked["noise"])
    settings = AdaptSettings(share=CURED, **how)
    found = adapt(policy, environment, latency, None, settings)
    alone = found.stages[0]
    # By the seeds of the verdict, if no round followed; else by those that rounds are judged by.
    without = found.adapted if len(found.stages) == 1 else alone.returns
    figures = {
        "task": asked["policy"].rpartition("-")[0],
        "policy": asked["policy"],
        "latency": asked["latency"],
        "latency_s": float(max(latency.values_s)),
        "frozen_return": found.frozen.mean,
        "floor": found.floor,
        "as_it_is": found.kept(found.as_it_is),
        "data_alone": found.kept(without),
        "adapted": found.kept(found.adapted),
        "rounds": found.best,
        "error_held_out": alone.held_out,
        "error_visited": alone.visited,
        "seconds": found.seconds,
    }
    summary = found.summary()
    kept = ("frozen", "as_it_is", "adapted", "stages", "verdict")
    return {"asked": asked, "figures": figures, "more": {name: summary[name] for name in kept}}


def trained_at(path: Path) -> dict[tuple[str, str], list[float]]:
    """Returns of trainings at a latency, knowing what is in flight: by task and latency."""
    found: dict[tuple[str, str], list[float]] = {}
    if path.exists():
        needed = {"name": str, "at": int, "mean_return": float}
        for line in read_json_lines(path, needed, object):
            key = line["name"].split("-at-")[0].rpartition("-")[0], str(line["at"])
            found.setdefault(key, []).append(line["mean_return"])
    return found


def table(
    cells: Sequence[dict[str, Any]], trained: Mapping[tuple[str, str], Sequence[float]]
) -> list[dict[str, str]]:
    """A line for each task and latency: means over policies, with Student's t interval."""
    rows = []
    for task, latency, group in groups(cells):
        frozen = np.array([figures["frozen_return"] for figures in group])
        row = {
            "task": task,
            "steps of latency": latency,
            "policies": str(len(group)),
            "frozen": f"{frozen.mean():.0f}",
        }
        for name in ("as_it_is", "data_alone", "adapted"):
            row[_WORDS[name]] = _mean([figures[name] for figures in group])
        floor = np.mean([figures["floor"] for figures in group])
        there = (np.array(trained.get((task, latency), ())) - floor) / (frozen.mean() - floor)
        row["trained there, knowing"] = _mean(there) if len(there) else "-"
        row["least adapted"] = f"{min(figures['adapted'] for figures in group):.0%}"
        row["policies with rounds"] = str(sum(figures["rounds"] > 0 for figures in group))
        rows.append(row)
    return rows


_WORDS = {
    "as_it_is": "kept, as it is",
    "data_alone": "adapted, data alone",
    "adapted": "adapted, with rounds if needed",
}


def groups(cells: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Task, latency and the figures of its policies."""
    every = [cell["figures"] for cell in cells]
    for task in dict.fromkeys(figures["task"] for figures in every):
        for latency in sorted({f["latency"] for f in every if f["task"] == task}):
            yield task, latency, [f for f in every if (f["task"], f["latency"]) == (task, latency)]


def claim(cells: Sequence[dict[str, Any]]) -> str:
    """What was expected, and what came."""
    sentences = []
    least = min(len(group) for _, _, group in groups(cells))
    for latency in ("1", "2"):
        hurt, cured = [], []
        there = [(task, group) for task, at, group in groups(cells) if at == latency]
        if not there:
            continue
        for task, group in there:
            before = np.mean([figures["as_it_is"] for figures in group])
            after = np.mean([figures["adapted"] for figures in group])
            if before < HURT:
                hurt.append(task)
                if after >= CURED:
                    cured.append(task)
        met = "as expected" if len(cured) >= TASKS_CURED else f"{TASKS_CURED} were expected"
        if least < FEW:
            met += f" (a sketch: {least} policies of a task, not {FEW})"
        sentences.append(
            f"At {latency} control step{'s' if latency != '1' else ''} policies as they are keep "
            f"less than {HURT:.0%} on {len(hurt)} tasks ({', '.join(hurt) or 'none'}); adapted "
            f"they keep at least {CURED:.0%} on {len(cured)} of these "
            f"({', '.join(cured) or 'none'}): {met}."
        )
    return " ".join(sentences)


def _mean(values: Sequence[float] | NDArray[np.floating]) -> str:
    array = np.array(values)
    spread = f" ± {half_width(array):.2f}" if len(array) > 1 else ""
    return f"{round(float(array.mean()), 2) + 0.0:.2f}{spread}"  # not -0.00
