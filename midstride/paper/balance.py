"""Balance: DQN keeps a ball on a beam in its middle, at latencies of one and of two periods.

What is compared and expected is in the specification; the frozen world's policies are also run at
the latency of their draw. A training takes a quarter of a minute, all of it ten minutes of
two cores. Writes the table of all trials (table.csv), report.html with its plots, what came of each
comparison (claims.md), which draws fail (sensitivity.md), curves.csv and config.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rich.console import Console

from midstride.paper import figure2
from midstride.settings import Range


@dataclass(frozen=True)
class Options(figure2.Options):
    """Options of the experiment."""

    trials: Annotated[int, Range(1)] = 16
    """how many trainings of each arm there are, at 100 ms and at 200 ms by turns"""


def reproduce(options: Options, console: Console) -> None:
    """Run the sweep, write its report."""
    figure2.reproduce_figure("balance", options, console)
