"""Measure the latencies of this robot with this policy, without moving it.

The policy runs on the robot as midstride run would run it, with one difference: whatever it
decides, the robot is told to rest. Measured are the observation (capture to runtime), the
inference, the command (decision to robot), and their sum, which is the latency t_AS of training
and margins. Left behind in --output: a table of latencies, which --latency trace:FILE,up takes.

examples:
  midstride calibrate runs/aware --robot unix:robot.socket
  midstride margin runs/aware --latency trace:latencies.csv,up
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax, read
from midstride.cli.run import RobotOptions, connected, plan_for, policy_of
from midstride.scale.words import saved
from midstride.settings import Range


@dataclass(frozen=True)
class Options(RobotOptions):
    """How often, and where to."""

    decisions: Annotated[int, Range(10, 100_000)] = 200
    """how many are measured"""
    output: Path = Path("latencies.csv")
    """file for the latencies (CSV)"""


def command(args: Sequence[str], console: Console) -> None:
    usage = "calibrate POLICY --robot ADDRESS [options]"
    syntax = Syntax("calibrate", usage, __doc__ or "", (Group("options", Options),), ("policy",))
    run(read(Options, syntax, args), console)


def run(options: Options, console: Console) -> None:
    from midstride.realtime.clock import WallClock
    from midstride.realtime.drive import Resting, Run, drive
    from midstride.report.realtime import quantile_table, write_trace

    policy, trained, _ = policy_of(options)
    with connected(options) as robot:
        plan = plan_for(robot, trained, options, "concurrent")
        with show.bar(console, "measuring", options.decisions) as update:

            def goes_on(so_far: Run) -> bool:
                update(len(so_far.decisions))
                return len(so_far.decisions) < options.decisions

            resting, clock = Resting(robot), WallClock()
            done = drive(resting, policy, plan, clock, goes_on, arm_after_fault=options.arm)
    if done.ended:
        raise ValueError(f"the robot stopped after {len(done.decisions)} decisions: {done.ended}")
    count = write_trace(options.output, done.decisions)
    heading, *rows = quantile_table(done.decisions)
    table = Table(*heading)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(saved(options.output, f": {count} latencies; use --latency trace:FILE,up"))
