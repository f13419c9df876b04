"""Make the plots and the page of a sweep again, from its table.

FOLDER is that of a sweep: it holds table.csv. The plots, the statistics and report.html in it
are written anew; its runs are not read.

example:
  midstride report sweeps/figure2a
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from midstride.cli.arguments import Group, Syntax, read
from midstride.settings import Settings


@dataclass(frozen=True)
class Options(Settings):
    """Of what."""

    folder: Path = Path()
    """folder of a sweep"""


def command(args: Sequence[str], console: Console) -> None:
    usage = "report [FOLDER]"
    syntax = Syntax("report", usage, __doc__ or "", (Group("options", Options),), ("folder",))
    run(read(Options, syntax, args), console)


def run(options: Options, console: Console) -> None:
    from midstride.report.page import write_report

    write_report(options.folder, console)
