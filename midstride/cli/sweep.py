"""Train over a space of hyperparameters, in pairs.

SPEC is a TOML file (docs/sweeps.md says how to write one), or one that comes with midstride:
figure2a, figure2b, table1 and other experiments. The output folder holds the run of every trial,
table.csv and report.html. Interrupted, the same command goes on where it was.

examples:
  midstride sweep figure2a --trials 8
  midstride sweep mine.toml --trials 200 --engine ray --address auto
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax, read
from midstride.settings import Range, Settings


@dataclass(frozen=True)
class Options(Settings):
    """What to sweep, and on what."""

    spec: str
    """a TOML file, or the name of one that comes with midstride"""
    trials: Annotated[int | None, Range(1)] = None
    """random draws in each arm (default: all combinations)"""
    engine: Literal["local", "ray"] = "local"
    """local: one process per core; ray: tasks on a Ray cluster (needs midstride[ray])"""
    address: str | None = None
    """address of the Ray cluster, HOST:PORT or auto (default: one is started on this machine)"""
    workers: Annotated[int | None, Range(1)] = None
    """processes at once (default: one per core)"""
    output: Path | None = None
    """folder of the sweep (default: sweeps/NAME)"""
    retry_failed: bool = False
    """run failed trials again"""
    any_code: bool = False
    """take trials that other code made, if their settings agree; otherwise they are trained
    again"""
    trust: bool = False
    """believe the specification: a task gym:module:ID in it imports the module, which can do
    anything, and a trace may lie anywhere"""


def command(args: Sequence[str], console: Console) -> None:
    usage = "sweep SPEC [options]"
    syntax = Syntax("sweep", usage, __doc__ or "", (Group("options", Options),), ("spec",))
    run(read(Options, syntax, args), console)


def run(options: Options, console: Console) -> None:
    from midstride.report.page import write_report
    from midstride.scale.engines import make_engine
    from midstride.sweep.engine import run_grid
    from midstride.sweep.spec import read_spec

    spec = read_spec(options.spec, options.trust)
    folder = options.output or Path("sweeps") / spec.name
    engine = make_engine(options.engine, options.workers, options.address)
    with show.going_on("the same command goes on where it was"):
        run_grid(
            spec, options.trials, folder, engine, console, options.retry_failed, options.any_code
        )
    write_report(folder, console)
