"""Table 1: QT-Opt grasps in seven ways, blocking and concurrent, beside the paper's (hours).

Rows are arms, called by number. One more row is not trained: the policies of row 2, which learned
in blocking control, run in concurrent control; two more learn nothing (scripted). All rows are also
evaluated on household objects. Writes table.md, table.csv, table.png, what differs from row 2
(comparison.md), smoothness.md, claims.md, episodes.csv, household.csv, curves.csv, curves.png,
cost.md, config.json, and of each row a film of its median episode.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.console import Console
from rich.progress import track

from midstride.envs.vector import MEASURES
from midstride.learn.trainer import FINAL_EPISODES, FINAL_SCENES
from midstride.paper.grasping import curves, write_cost
from midstride.paper.judged import judged
from midstride.paper.scripted import grasp
from midstride.paper.study import (
    FEW,
    VIDEO_SEED,
    GridOptions,
    Study,
    finish,
    prepare,
    train,
    write_curves,
)
from midstride.paper.table1_report import (
    BLOCKING,
    EPISODES,
    HOUSEHOLD,
    LATE,
    SCRIPTED,
    UNAWARE,
    Measures,
    Rows,
    write_episodes,
    write_tables,
)
from midstride.report.curves import save_figure
from midstride.report.film import film_run
from midstride.settings import Range
from midstride.sweep.engine import Grid

_FIRM = (BLOCKING, UNAWARE, "5")  # on which the claims stand: as many trainings as count
_OTHERS = 3  # trainings of the other rows: a sketch
_FILMED = 9  # episodes that the median is of
_SCRIPTED_ENVS = 40


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    arms: tuple[str, ...] = ()
    """which rows to train, by number, 1 to 9 (default: all)"""
    seeds: Annotated[int | None, Range(1)] = None  # type: ignore[assignment]
    """how many trainings each row has (default: 8 of rows 2, 4 and 5, 3 of the others)"""
    video: bool = True
    """film the median episode of each row"""


def reproduce(options: Options, console: Console) -> None:
    """Train every row with several seeds, evaluate on held-out objects; beside the paper's."""
    study = prepare("table1", options)
    if options.show:
        write_tables(study.output, console)
        return
    grid = train_rows(study, options, console)
    rows, household = measured_rows(grid, console)
    write_episodes(study.output / EPISODES, rows, options.first_seed)
    write_episodes(study.output / HOUSEHOLD, household, options.first_seed)
    write_tables(study.output, console)
    write_cost(grid, study.output, console)
    write_curves(grid, study.output / "curves.csv", "success")
    save_figure(study.output / "curves.png", curves(grid))
    for arm in grid.folders if options.video else ():
        film_row(median_run(grid, arm), study.output / f"row{number_of(arm)}", console)
    finish(study, grid, console)


def number_of(row: str) -> str:
    return row.partition(":")[0]


def train_rows(study: Study, options: Options, console: Console) -> Grid:
    """All rows; those that claims stand on with more trainings, unless a number is given."""
    if options.seeds is not None:
        return train(study, options, console)
    parts = []
    for seeds, is_firm in ((FEW, True), (_OTHERS, False)):
        arms = {a: s for a, s in study.spec.arms.items() if (number_of(a) in _FIRM) == is_firm}
        if arms:
            some = replace(study, spec=replace(study.spec, arms=arms))
            parts.append(train(some, replace(options, seeds=seeds), console))
    order = list(study.spec.arms)

    def merged(name: str) -> dict[str, Any]:
        found = {arm: each for part in parts for arm, each in getattr(part, name).items()}
        return {arm: found[arm] for arm in order}

    rows = [row for part in parts for row in part.rows]
    return Grid(rows, merged("trainings"), merged("folders"), merged("results"))


# --- Rows that are not trained -------------------------------------------------------------------


def measured_rows(grid: Grid, console: Console) -> tuple[Rows, Rows]:
    """Episodes of every row on the objects to evaluate with, and on household objects."""
    rows: Rows = {}
    household: Rows = {}
    for arm, results in track(grid.results.items(), "evaluating", console=console):
        number = number_of(arm)
        pairs = list(zip(grid.trainings[arm], grid.folders[arm], strict=True))
        rows[number] = [result["measures"] for result in results]
        household[number] = [
            judged(t, f, "household", evaluation_set="household")["measures"] for t, f in pairs
        ]
        if number == BLOCKING:
            late = {"mode": "concurrent"}
            rows[LATE] = [judged(t, f, "concurrently", **late)["measures"] for t, f in pairs]
            late["evaluation_set"] = "household"
            household[LATE] = [
                judged(t, f, "household concurrently", **late)["measures"] for t, f in pairs
            ]
    first = next(iter(grid.trainings.values()))[0]
    rows |= {name: [clock_alone(first, name)] for name in SCRIPTED}
    return rows, household


def clock_alone(training: Any, name: str) -> Measures:
    """A scripted policy that knows everything, and learns nothing: what the mode is worth to it."""
    mode = name.partition(", ")[2]
    values: dict[str, Any] = {"mode": mode, "observation": "state", "knowledge": (), "frames": 1}
    values |= {"hand_velocity": False, "depth": False}
    environment = replace(training.environment, **values).for_evaluation(FINAL_SCENES)
    wanted = FINAL_EPISODES * training.run.evaluation_episodes
    episodes = grasp(environment.make(min(wanted, _SCRIPTED_ENVS), None), "privileged", wanted)
    return {name: [e.measures[name] for e in episodes] for name in MEASURES}


# --- Films ---------------------------------------------------------------------------------------


def median_run(grid: Grid, arm: str) -> Path:
    """The training of an arm whose success is the median one's."""
    means = [np.mean(result["measures"]["success"]) for result in grid.results[arm]]
    order: Sequence[int] = np.argsort(means, kind="stable").tolist()
    return grid.folders[arm][order[len(order) // 2]]


def film_row(run: Path, path: Path, console: Console) -> None:
    """The film is the run's: made once, as the run is."""
    endings = (".mp4", ".png")
    if not all((run / f"video{ending}").exists() for ending in endings):
        film_run(run, run / "video", _FILMED, VIDEO_SEED, console, median=True)
    for ending in endings:
        if (run / f"video{ending}").exists():
            shutil.copyfile(run / f"video{ending}", path.with_suffix(ending))
