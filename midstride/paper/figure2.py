"""Figures 2a and 2b: every trial of a sweep that comes with midstride."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from rich.console import Console
from rich.progress import track

from midstride.measure.statistics import interval
from midstride.paper.judged import judged
from midstride.paper.study import RunOptions, finish, prepare, write_curves
from midstride.report.page import REPORT_FILES, write_report
from midstride.scale.engines import make_engine
from midstride.settings import Range
from midstride.sweep.disk import LATE, SWEEP, TABLE, write_table
from midstride.sweep.engine import Grid, run_grid
from midstride.sweep.spec import Spec, stratum_of


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of a figure."""

    trials: Annotated[int, Range(1)] = 36
    """how many draws of hyperparameters there are, each trained in every arm"""


def reproduce_figure(name: str, options: Options, console: Console) -> None:
    """Run the sweep; copy its table, report and plots to the output, without the runs."""
    study = prepare(name, options)
    if options.show:
        write_report(study.output, console)
        return
    engine = make_engine(options.engine, options.workers, options.address)
    grid = run_grid(
        study.spec, options.trials, study.folder, engine, console, any_code=options.any_code
    )
    write_table(study.folder, [*grid.rows, *run_late(study.spec, grid, console)])
    write_report(study.folder, console)
    study.output.mkdir(parents=True, exist_ok=True)
    for file in (SWEEP, TABLE, *REPORT_FILES):
        if (study.folder / file).exists():
            shutil.copyfile(study.folder / file, study.output / file)
    write_curves(grid, study.output / "curves.csv")
    finish(study, grid, console)


def run_late(spec: Spec, grid: Grid, console: Console) -> list[dict[str, Any]]:
    """Rows of the controls, trained in the frozen world, as they are at the latency of the draw."""
    work = [
        (arm, training, folder)
        for arm in spec.design.controls
        for training, folder in zip(
            grid.trainings.get(arm, ()), grid.folders.get(arm, ()), strict=True
        )
    ]
    rows = {(row["arm"], row["draw"]): row for row in grid.rows}
    found = []
    for arm, training, folder in track(work, "running controls late", console=console):
        draw = training.run.seed - spec.first_seed
        late = {"period": None, **stratum_of(spec, draw)}
        totals = judged(training, folder, "late", **late)["returns"]
        found.append({**rows[arm, draw], "arm": f"{arm}{LATE}", **_outcome(totals), **late})
    kept = set(spec.swept)
    return [{k: v for k, v in row.items() if k != "period" or k in kept} for row in found]


def _outcome(totals: Sequence[float]) -> dict[str, float]:
    low, high = interval(totals)
    return {"mean_return": float(np.mean(totals)), "low": low, "high": high}
