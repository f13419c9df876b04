"""Agents: SAC and PPO beside those of sbx and Stable-Baselines3, at the same settings and steps.

Each arm is a task and an agent of ours; the peer is trained with its settings, as many times.
`--arms sac-double-pendulum` trains one. Writes table.md, returns.csv, curves.csv, a picture of each
arm's curves, and config.json. Every training that has ended is kept: the same command goes on.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.console import Console
from rich.progress import track

from midstride.disk.runs import read_curve
from midstride.envs.checks import available_cores
from midstride.learn.agents import Training
from midstride.measure.statistics import difference_of, half_width
from midstride.paper.peers import NAMES, check_peer, peer_result, train_peer
from midstride.paper.study import GridOptions, finish, prepare, show_table, sketch, train
from midstride.report.curves import plot_curves, save_figure
from midstride.scale.words import format_return
from midstride.settings import Range
from midstride.sweep.disk import write_csv
from midstride.sweep.spec import expand, slug

Means = dict[str, list[float]]  # of an arm: a mean return for each training


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    seeds: Annotated[int, Range(2)] = 5
    """how many trainings each arm has, ours and the peer's; fewer than 8 are a sketch"""


def reproduce(options: Options, console: Console) -> None:
    """Train ours and the peers', compare arm by arm."""
    if options.show:
        raise ValueError("agents are not shown again from files: leave out --show")
    study = prepare("agents", options)
    for agent in {str(trial.training.agent.agent) for trial in expand(study.spec, 1)}:
        check_peer(agent)
    grid = train(study, options, console)
    places = {
        arm: [study.folder / "peers" / slug(arm) / f"{t.run.seed:04d}" for t in group]
        for arm, group in grid.trainings.items()
    }
    pairs = [
        (training, place)
        for arm, group in grid.trainings.items()
        for training, place in zip(group, places[arm], strict=True)
    ]
    train_peers(pairs, options.workers or available_cores(), console)
    ours = {arm: [r["mean_return"] for r in group] for arm, group in grid.results.items()}
    theirs = {arm: [_mean(t, p) for t, p in pairs if p in places[arm]] for arm in places}
    agents = {arm: group[0].agent.agent for arm, group in grid.trainings.items()}
    steps = {arm: group[0].run.steps for arm, group in grid.trainings.items()}
    title = f"Returns beside peers' at the same steps{sketch(options.seeds)}"
    show_table(title, table_rows(ours, theirs, agents, steps), study.output / "table.md", console)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    heading = ["arm", "who", "seed", "mean_return"]
    write_csv(study.output / "returns.csv", heading, _returns(ours, theirs, agents, seeds))
    curves = (
        [arm, seed, at, value]
        for arm, folders in grid.folders.items()
        for seed, folder in zip(seeds, folders, strict=True)
        for at, value in read_curve(folder, "evaluation").items()
    )
    write_csv(study.output / "curves.csv", ["arm", "seed", "steps", "evaluation"], curves)
    for arm, folders in grid.folders.items():
        about = f"{arm}, {options.seeds} seeds (mean and range)"
        save_figure(study.output / f"{slug(arm)}.png", plot_curves({arm: folders}, about))
    finish(study, grid, console)


def train_peers(pairs: Sequence[tuple[Training, Path]], workers: int, console: Console) -> None:
    """Those that have not ended yet, several at a time, each in a process of its own."""
    waiting = [pair for pair in pairs if peer_result(*pair) is None]
    if not waiting:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, max_tasks_per_child=1) as pool:
        under_way = [pool.submit(train_peer, *pair) for pair in waiting]
        ended = as_completed(under_way)
        try:
            for one in track(ended, "training peers", len(waiting), console=console):
                one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _mean(training: Training, place: Path) -> float:
    result = peer_result(training, place)
    assert result is not None  # it was trained, or that was an error
    return float(result["mean_return"])


def table_rows(
    ours: Means, theirs: Means, agents: Mapping[str, str], steps: Mapping[str, int]
) -> list[dict[str, str]]:
    """A row for each arm: means with 95 % intervals over trainings, and their difference's."""
    rows = []
    for arm, mine in ours.items():
        found = difference_of(mine, theirs[arm])
        verdict = "better" if found.low > 0 else "worse" if found.high < 0 else "as well"
        rows.append(
            {
                "agent and task": arm,
                "steps": f"{steps[arm]:,}",
                "ours": _spread(mine),
                "peer's": f"{_spread(theirs[arm])} ({NAMES[agents[arm]]})",
                "difference": f"{format_return(found.value)} ± {format_return(found.half)}",
                "ours learns": verdict,
            }
        )
    return rows


def _spread(values: Sequence[float]) -> str:
    array = np.array(values)
    return f"{format_return(float(array.mean()))} ± {format_return(half_width(array))}"


def _returns(
    ours: Means, theirs: Means, agents: Mapping[str, str], seeds: Sequence[int]
) -> Iterator[list[Any]]:
    for arm in ours:
        for who, values in (("midstride", ours[arm]), (NAMES[agents[arm]], theirs[arm])):
            for seed, value in zip(seeds, values, strict=True):
                yield [arm, who, seed, value]
