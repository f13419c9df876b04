"""See what latency does to a controller that nobody trained.

A hand-written swing-up and balance controller runs on Cartpole at each latency, once on what
it observed and once on what it knows about the action in flight. A table is shown, and
latency.png is left in the output folder. A latency is the time from an observation to the
switch to the action chosen on it. Under a minute.

example:
  midstride latency --latencies 0 30ms 60ms --episodes 32
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from midstride.cli.arguments import Group, Syntax, read


def command(args: Sequence[str], console: Console) -> None:
    from midstride.paper import controller

    groups = (Group("options", controller.Options),)
    syntax = Syntax("latency", "latency [options]", __doc__ or "", groups)
    controller.run(read(controller.Options, syntax, args), console)
