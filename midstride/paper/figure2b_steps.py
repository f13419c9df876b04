"""Figure 2b as it was first swept: as many steps in every trial (hours).

Writes the table of all trials (table.csv), report.html with its plots, and config.json.
"""

from __future__ import annotations

from rich.console import Console

from midstride.paper.figure2 import Options, reproduce_figure

__all__ = ["Options", "reproduce"]


def reproduce(options: Options, console: Console) -> None:
    """Run the sweep, write its report."""
    reproduce_figure("figure2b-steps", options, console)
