"""Figure 2a: concurrent Cartpole, feed-forward and recurrent DQN over hyperparameters (hours).

What is compared and expected is in the specification; the controls are also run at the latency of
their draw. Writes the table of all trials (table.csv), report.html with its plots, what came of
each comparison (claims.md), which draws fail (sensitivity.md), curves.csv and config.json.
"""

from __future__ import annotations

from rich.console import Console

from midstride.paper.figure2 import Options, reproduce_figure

__all__ = ["Options", "reproduce"]


def reproduce(options: Options, console: Console) -> None:
    """Run the sweep, write its report."""
    reproduce_figure("figure2a", options, console)
