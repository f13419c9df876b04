"""Serve a simulated robot on the wall clock, in a process of its own.

BODY is cartpole, or grasp: the arm's hand over its bin, with its camera. Physics is paced by the
wall clock, whoever is connected. It takes one client at a time, which must have the token that is
written to --token. What its actuators are told stays within limits of position, velocity,
acceleration and jerk, whatever is sent; without a fresh command for --watchdog it stops, and stays
stopped until it is armed again. Ctrl-C ends it.

examples:
  midstride robot cartpole
  midstride robot grasp --like runs/grasp
  midstride robot grasp --like runs/blocking --watchdog 2s
  midstride robot cartpole --actions 5 --address ws://127.0.0.1:8765 --watchdog 150ms
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console

from midstride.cli.arguments import Group, Syntax, read
from midstride.scale.words import plain, saved
from midstride.seconds import Time, seconds_of
from midstride.settings import Range, Settings

if TYPE_CHECKING:
    from midstride.realtime.bodies import Body
    from midstride.realtime.clocked import Tick

_LONGEST_LOG = 2_000_000  # ticks that are remembered


@dataclass(frozen=True)
class Options(Settings):
    """What is served, and to whom."""

    body: Literal["cartpole", "grasp"]
    """cartpole or grasp"""
    address: str = "unix:robot.socket"
    """where it is served: unix:PATH, or ws://127.0.0.1:PORT (0: any that is free)"""
    token: Path = Path("robot.token")
    """file that the token is written to, for your eyes only"""
    watchdog: Time = "250ms"
    """the robot stops without a fresh command for so long"""
    like: Path | None = None
    """folder of a finished run: serve the robot that its policy was trained for (objects, camera
    and image of grasping; the number of discrete actions of cartpole)"""
    strange: bool = False
    """grasp: another body than that of training, with household objects (docs/robot.md)"""
    actions: Annotated[int, Range(3, 8)] | None = None
    """cartpole: how many discrete displacements it takes (default: continuous ones)"""
    seed: Annotated[int, Range(0)] = 0
    """of how the first episode begins"""
    attached: bool = False
    """end when standard input ends: so a program that starts a robot takes it along, however the
    program ends"""
    log: Path | None = None
    """file for what the actuators were told at every tick (CSV), written when it ends"""


def command(args: Sequence[str], console: Console) -> None:
    usage = "robot BODY [options]"
    syntax = Syntax("robot", usage, __doc__ or "", (Group("options", Options),), ("body",))
    run(read(Options, syntax, args), console)


def run(options: Options, console: Console) -> None:
    from midstride.realtime.server import serve_body

    if options.attached:
        threading.Thread(target=_end_with_input, name="input", daemon=True).start()
    ticks: deque[Tick] = deque(maxlen=_LONGEST_LOG)
    try:
        serve_body(
            body_of(options),
            options.address,
            options.token,
            seconds_of(options.watchdog),
            lambda line: console.print(plain(line), soft_wrap=True),
            options.seed,
            None if options.log is None else ticks.append,
        )
    finally:
        if options.log is not None and ticks:
            _write_log(options.log, ticks)
            console.print(saved(options.log))


def _end_with_input() -> None:
    """Wait until nobody holds the other end of standard input; then end as SIGTERM does."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def body_of(options: Options) -> Body:
    """What is served."""
    from midstride.realtime.bodies import TaskBody

    settings: Any = None
    if options.like is not None:
        from midstride.tasks.registry import environment_of

        settings = environment_of(options.like)
        if settings.task != options.body:
            raise ValueError(f"{options.like} was trained for {settings.task}, not {options.body}")
    if options.body == "cartpole":
        if options.strange:
            raise ValueError("--strange is of grasp: cartpole has one body")
        actions = options.actions
        if settings is not None and settings.actions != "continuous":
            actions = settings.actions
        return TaskBody("cartpole", actions)
    if options.actions is not None:
        raise ValueError("--actions is of cartpole: a hand takes continuous actions")
    from midstride.realtime.hand import HandBody
    from midstride.realtime.strange import Strange
    from midstride.tasks.grasp.settings import GraspSettings

    strange = Strange() if options.strange else None
    return HandBody(settings or GraspSettings(scenes=64), strange)


def _write_log(path: Path, ticks: deque[Tick]) -> None:
    from midstride.sweep.disk import write_csv

    names = ("at_s", "decision", "state", "place", "velocity", "acceleration")
    write_csv(
        path,
        names,
        (
            (
                repr(round(tick.at_s, 9)),
                tick.number,
                tick.state,
                *(
                    "" if part is None else " ".join(f"{x:.9g}" for x in part)
                    for part in (tick.place, tick.velocity, tick.acceleration)
                ),
            )
            for tick in ticks
        ),
    )
