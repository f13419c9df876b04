"""Run a policy on a robot, on the wall clock.

POLICY is the folder of a finished run, a .zip of Stable-Baselines3, an .onnx file or, with
--trust, a TorchScript .pt file or module:callable. The robot is one that midstride robot serves.
The policy sees the columns that it was trained with, computed from what is measured and actually
sent; observation, thought and command go on side by side. The robot is armed when the policy has
warmed up, and told to stop when the run ends, however it ends. After a fault it must be armed by
you (--arm). Left behind in --output: decisions.csv, run.json, run.html and, of a robot that can
recall its run, film.mp4.

examples:
  midstride run runs/aware --robot unix:robot.socket
  midstride run ppo.zip --robot ws://127.0.0.1:8765 --period 50ms --seconds 20
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from rich.live import Live
from rich.table import Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax, read
from midstride.latency_text import Latency, latency_name, read_latency
from midstride.learn.signals import Interrupted, number_of, word
from midstride.scale.words import plain, saved
from midstride.seconds import Time, as_seconds, format_s
from midstride.settings import Range, Settings

if TYPE_CHECKING:
    from midstride.realtime.drive import Plan, Run
    from midstride.realtime.remote import RemoteRobot

_BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class RobotOptions(Settings):
    """Which policy, on which robot."""

    policy: str
    """folder of a finished run, or a policy of others: a .zip of Stable-Baselines3, an .onnx file,
    with --trust a TorchScript .pt file or module:callable"""
    robot: str = "unix:robot.socket"
    """address of the robot: unix:PATH or ws://127.0.0.1:PORT"""
    token: Path = Path("robot.token")
    """file with the robot's token"""
    period: Time | None = None
    """time between two observations (default: as trained)"""
    latency: Latency = "0"
    """a decision comes into force no earlier than this after its capture: 50ms, or any latency of
    training, such as jitter:150ms,40ms or trace:latencies.csv. With the one that the policy was
    trained with, and thoughts that are quicker, latencies are those of training"""
    seed: Annotated[int, Range(0)] | None = None
    """begin a new episode of a simulated robot, from this seed"""
    arm: bool = False
    """arm the robot though it stopped after a fault: look at it first"""
    normalize: Path | None = None
    """file with mean and var of the observations in training, where they were normalised"""
    trust: bool = False
    """run code that comes with a policy or that the files of a run name: it can do anything"""


@dataclass(frozen=True)
class Options(RobotOptions):
    """How long, and how."""

    mode: Literal["concurrent", "hold", "rest", "blocking"] | None = None
    """concurrent: it moves while the policy thinks; hold: it rests meanwhile; rest: it completes
    every motion, and rests meanwhile (a hand); blocking: its world waits meanwhile (simulated)
    (default: rest for who was trained to grasp in blocking mode, else concurrent)"""
    seconds: Annotated[float, Range(0.01, 86400)] = 10.0
    """how long"""
    output: Path = Path("robot-run")
    """folder for decisions.csv, run.json, run.html and film.mp4"""
    film: bool = True
    """film the run, as the robot recalls it: drawn by the robot's side afterwards"""


def command(args: Sequence[str], console: Console) -> None:
    usage = "run POLICY --robot ADDRESS [options]"
    syntax = Syntax("run", usage, __doc__ or "", (Group("options", Options),), ("policy",))
    run(read(Options, syntax, args), console)


def run(options: Options, console: Console) -> None:
    from midstride.realtime.clock import WallClock
    from midstride.realtime.drive import Run, drive
    from midstride.report.realtime import FILM, write_run

    policy, trained, rests = policy_of(options)
    mode = options.mode or ("rest" if rests else "concurrent")
    done = Run()
    with connected(options) as robot:
        plan = plan_for(robot, trained, options, mode)
        goes_on = lambda so_far: so_far.lasted_s < options.seconds  # noqa: E731
        stopped: KeyboardInterrupt | None = None
        name = Path(options.policy).stem
        about = options.to_dict() | _texts(options) | {"mode": mode}
        try:
            with Live(
                console=console,
                refresh_per_second=4,
                transient=True,
                get_renderable=lambda: _live(done),
            ):
                drive(robot, policy, plan, WallClock(), goes_on, done, arm_after_fault=options.arm)
        except KeyboardInterrupt as stop:  # the robot was told to stop
            stopped, done.ended = stop, word(number_of(stop))
        except Exception as error:  # of the policy, say
            done.ended = f"{type(error).__name__}: {error}"
            raise
        finally:  # before anything else can go wrong, a film say
            if done.began_s:
                write_run(options.output, done, name, about)
        film = options.output / FILM
        title = f"{name}, {mode}"
        is_filmed = options.film and stopped is None and _film(robot, done, film, title, console)
    if is_filmed:
        write_run(options.output, done, name, about, is_filmed)
    _show(done, console)
    files = "/run.html, decisions.csv, run.json" + ", film.mp4" * is_filmed
    console.print(saved(options.output, files))
    if stopped is not None:
        raise Interrupted(done.ended, number_of(stopped))
    if done.ended:
        raise ValueError(f"the run ended after {format_s(done.lasted_s, 3)}: {done.ended}")


def _film(robot: RemoteRobot, done: Run, path: Path, title: str, console: Console) -> bool:
    """Film the run; whether that could be done: a run is not lost for a film."""
    from midstride.realtime.robot import RobotFault
    from midstride.report.film import save_video, titled
    from midstride.report.robot_film import FPS, robot_film

    declared = robot.declared
    if not declared.recalls:
        console.print(plain(f"{declared.name} does not recall its run: there is no film."))
        return False
    try:
        with show.bar(console, "filming", 100) as update:
            _wait_for_rest(robot)
            names = declared.controlled.names if declared.controlled else ()
            frames = robot_film(robot, done, names, lambda share: update(round(100 * share)))
        if frames is None:
            return False
        save_video(path, titled(frames, title), FPS)
    except (RobotFault, OSError, ImportError) as error:
        console.print(plain(f"the run is not filmed: {error}"))
        return False
    return True


def _wait_for_rest(robot: RemoteRobot) -> None:
    """Until the robot has stopped; for a few seconds at most, then it says so itself."""
    from midstride.realtime.clock import WallClock

    clock = WallClock()
    for _ in range(100):
        if robot.get_observation().state not in ("armed", "stopping"):
            return
        clock.sleep_until(clock.now_s() + 0.05)


def _texts(options: RobotOptions) -> dict[str, Any]:
    """Paths and latencies as a file can hold them."""
    paths = {k: str(v) for k, v in options.to_dict().items() if isinstance(v, Path)}
    return {**paths, "latency": latency_name(options.latency)}


# --- What calibrate does too ---------------------------------------------------------------------


def policy_of(options: RobotOptions) -> tuple[Any, Any, bool]:
    """The policy, the columns and timing that it was trained with, where it says so.

    And whether every action ran to completion and rest in its training.
    """
    from midstride.policies import load
    from midstride.policies.sources import is_foreign
    from midstride.tasks.registry import environment_of

    policy = load(options.policy, options.trust, normalize=options.normalize)
    if is_foreign(options.policy):
        return policy, None, False
    envs = environment_of(Path(options.policy), options.trust).small().make(1)
    trained, rests = (envs.layout, envs.timing), envs.hints.rests
    envs.close()
    return policy, trained, rests


def connected(options: RobotOptions) -> RemoteRobot:
    """The robot at the address; it is connected where this is entered."""
    from midstride.realtime import addresses
    from midstride.realtime.remote import RemoteRobot

    return RemoteRobot(options.robot, addresses.read_token(options.token))


def plan_for(
    robot: RemoteRobot,
    trained: Any,
    options: RobotOptions,
    mode: Literal["concurrent", "hold", "rest", "blocking"],
) -> Plan:
    """The plan, on a robot that may be armed."""
    from midstride.realtime.drive import plan_of

    plan = plan_of(robot.declared, trained, mode, as_seconds(options.period))
    plan = replace(plan, latency=read_latency(options.latency), seed=options.seed or 0)
    seen = robot.get_observation()
    if seen.state == "armed":
        raise ValueError("the robot is armed already: stop it first")
    if options.seed is not None:
        robot.reset(options.seed)
    return plan


# --- On the screen -------------------------------------------------------------------------------


def _live(run: Run) -> Table:
    """What happens now: rate, latencies, what was dropped."""
    recent = run.decisions[-200:]
    latencies = [one.latency_s for one in recent if one.latency_s is not None]
    rate = run.count("in force") / run.lasted_s if run.lasted_s else 0.0
    heads = ("state", "rate", "t_AS", "distribution", "missed", "stale", "starved", "watchdog")
    table = Table(*heads)
    most = max(latencies, default=0.0)
    middle = sorted(latencies)[len(latencies) // 2] if latencies else 0.0
    table.add_row(
        plain(run.state),
        f"{rate:.1f}/s",
        f"{format_s(middle, 3)}, most {format_s(most, 3)}",
        histogram(latencies),
        str(run.missed),
        str(run.count("stale")),
        str(run.starved),
        watchdog(run),
    )
    return table


def watchdog(run: Run) -> str:
    """How near the robot's watchdog was to its time."""
    if run.watchdog_s is None:
        return "none: nobody stops it but you"
    return f"{format_s(run.longest_silence_s(), 3)} of {format_s(run.watchdog_s)}"


def histogram(values: Sequence[float], bins: int = 16) -> str:
    """A bar for each part of the range from 0 to the largest."""
    most = max(values, default=0.0)
    if most <= 0:
        return _BARS[0] * bins
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(bins * max(0.0, value) / most))] += 1
    top = max(counts)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // top)] for count in counts)


def _show(run: Run, console: Console) -> None:
    from midstride.report.realtime import counts, quantile_table

    heading, *rows = quantile_table(run.decisions)
    table = Table(*heading)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    said = ", ".join(f"{count} {name}" for name, count in counts(run).items() if count)
    score = "" if run.score is None else f" Reward since the episode began: {run.score:.1f}."
    console.print(plain(f"{run.lasted_s:.1f} s: {said}.{score}"))
    console.print(
        plain(f"Longest time without a fresh command, of the watchdog's: {watchdog(run)}.")
    )
