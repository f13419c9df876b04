"""Figures 2a and 2b: every trial of a sweep that comes with midstride."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Annotated

from rich.console import Console

from midstride.paper.study import RunOptions, finish, prepare
from midstride.report.page import REPORT_FILES, write_report
from midstride.scale.engines import make_engine
from midstride.settings import Range
from midstride.sweep.disk import SWEEP, TABLE
from midstride.sweep.engine import run_grid


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of a figure."""

    trials: Annotated[int, Range(1)] = 32
    """how many draws of hyperparameters there are, each trained in every arm"""


def reproduce_figure(name: str, options: Options, console: Console) -> None:
    """Run the sweep; copy its table, report and plots to the output, without the runs."""
    study = prepare(name, options)
    engine = make_engine(options.engine, options.workers, options.address)
    grid = run_grid(
        study.spec, options.trials, study.folder, engine, console, any_code=options.any_code
    )
    write_report(study.folder, console)
    study.output.mkdir(parents=True, exist_ok=True)
    for file in (SWEEP, TABLE, *REPORT_FILES):
        if (study.folder / file).exists():
            shutil.copyfile(study.folder / file, study.output / file)
    finish(study, grid, console)
