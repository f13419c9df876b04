"""Grasps of trained policies on a robot, on the wall clock or on a virtual one; each is kept."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import track

from midstride.disk.files import versions, write_whole
from midstride.disk.read import Missing, read_text
from midstride.disk.runs import claimed
from midstride.latency_text import read_latency
from midstride.learn.agents import Training
from midstride.learn.signals import interrupt
from midstride.policies import load
from midstride.realtime import addresses
from midstride.realtime.clock import Clock, VirtualClock, WallClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.drive import Run, plan_of
from midstride.realtime.grasps import Grasp, Grasper, grasp
from midstride.realtime.hand import HandBody
from midstride.realtime.recording import Recalls
from midstride.realtime.remote import RemoteRobot
from midstride.realtime.robot import RobotFault
from midstride.realtime.runtime import Mode
from midstride.realtime.strange import Strange
from midstride.report.film import save_video, titled
from midstride.report.robot_film import FPS, robot_film
from midstride.scale.local import die_with_parent
from midstride.tasks.grasp.env import CONTROLLED
from midstride.tasks.grasp.settings import PERIOD_S, GraspSettings

ClockName = Literal["wall", "virtual"]
WATCHDOG_S = 2.0  # longer than a motion that runs to its end, and a thought after it
_LARGEST = 2**24  # bytes of a file of grasps
_START_S, _END_S = 60.0, 30.0  # that a robot's process may take


@dataclass(frozen=True)
class Job:
    """A policy that is to grasp, how it is run, and where its grasps are kept.

    name: for people
    films: how many of its first grasps are filmed, to {film}-{number}.mp4
    """

    training: Training
    folder: Path  # of the training
    mode: Mode
    clock: ClockName
    kept: Path
    name: str = ""
    films: int = 0
    film: Path = Path("grasp")

    def key(self, strange: Strange) -> dict[str, Any]:
        """What a file of grasps must say to be gone on with."""
        return {
            "training": self.training.hash,
            "mode": self.mode,
            "clock": self.clock,
            "body": asdict(strange),
            "version": versions().get("midstride"),
            "columns": [field.name for field in fields(Grasp)],
        }


def grasps_of_all(
    jobs: Sequence[Job], count: int, strange: Strange, robots: int, console: Console
) -> list[list[Grasp]]:
    """The grasps of every job; robots: how many are grasped with side by side."""
    if robots == 1:
        return [
            list(track(grasps_of(job, count, strange), job.name, count, console=console))
            for job in jobs
        ]
    context = multiprocessing.get_context("spawn")
    # A process for each robot's client too: in one, the clients' threads would make each other late
    with ProcessPoolExecutor(robots, context, _begin_client) as pool:
        try:
            coming = [pool.submit(_all_grasps, job, count, strange) for job in jobs]
            said = f"grasping with {robots} robots"
            return [one.result() for one in track(coming, said, console=console)]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()  # grasps are kept one by one
            raise


def _begin_client() -> None:
    """In a process of its own: it ends with its parent, and takes its robot along."""
    die_with_parent()
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which tells us


def _all_grasps(job: Job, count: int, strange: Strange) -> list[Grasp]:
    try:
        return list(grasps_of(job, count, strange))
    except KeyboardInterrupt:
        os._exit(1)  # a pool's process would go on with the next job


def grasps_of(job: Job, count: int, strange: Strange) -> Iterator[Grasp]:
    """The first `count` grasps of a job: those that are kept, and then new ones, each kept."""
    found = kept(job.kept, job.key(strange))[:count]
    yield from found
    if len(found) == count:
        return
    with claimed(job.kept.with_suffix(""), "grasping"):
        if len(kept(job.kept, job.key(strange))) > len(found):
            raise ValueError(f"another process has grasped for {job.kept}: start this one again")
        while len(found) < count:
            for one in _new_grasps(job, range(len(found), count), strange):
                found.append(one)
                write_kept(job.kept, job.key(strange), found)
                yield one


def _new_grasps(job: Job, numbers: range, strange: Strange) -> Iterator[Grasp]:
    """New grasps with one robot; fewer than asked for if it is lost, the last of them broken."""
    settings = job.training.environment
    assert isinstance(settings, GraspSettings)
    policy = load(job.folder)
    envs = settings.small().make(1)
    trained = envs.layout, envs.timing
    envs.close()
    latency = strange.latency(read_latency(settings.latency))
    period_s = PERIOD_S if job.mode == "concurrent" else None
    with _robots(job, settings, strange) as robot_for_a_grasp:
        for k in numbers:
            robot, clock = robot_for_a_grasp()
            plan = plan_of(robot.declared, trained, job.mode, period_s)
            plan = replace(plan, latency=latency, seed=k)
            one: Grasp | None = None
            try:
                one, run = grasp(robot, policy, plan, clock, k, settings.max_steps)
                if k < job.films:  # before it is kept: what is kept is not filmed again
                    _film(job, k, run, robot)
            except RobotFault as fault:
                yield one or Grasp.broken(str(fault))
                return
            yield one


def _film(job: Job, k: int, run: Run, robot: Grasper) -> None:
    assert isinstance(robot, Recalls)
    frames = robot_film(robot, run, CONTROLLED)
    if frames is not None:
        path = job.film.with_name(f"{job.film.name}-{k}.mp4")
        save_video(path, titled(frames, f"{job.name}, grasp {k}, {job.clock} clock"), FPS)


@contextmanager
def _robots(
    job: Job, settings: GraspSettings, strange: Strange
) -> Iterator[Callable[[], tuple[Grasper, Clock]]]:
    """Gives a robot and its clock for each grasp; a virtual one starts anew, at its second 0."""
    if job.clock == "wall":
        with served_hand(job.folder) as robot:
            clock = WallClock()
            yield lambda: (robot, clock)
        return
    body = HandBody(settings, strange)

    def anew() -> tuple[Grasper, Clock]:
        clock = VirtualClock()
        robot = ClockedRobot(body, clock, WATCHDOG_S, limited=True)
        robot.connect()
        return robot, clock

    yield anew


@contextmanager
def served_hand(folder: Path) -> Iterator[RemoteRobot]:
    """A client of `midstride robot grasp --strange`, in a process of its own while this lasts.

    It ends when its standard input does: also when this process is killed.
    """
    clock = WallClock()
    with (
        tempfile.TemporaryDirectory(prefix="midstride-hand-") as name,
        tempfile.TemporaryFile() as said,
    ):
        place = Path(name)
        command = [
            sys.executable, "-m", "midstride", "robot", "grasp", "--like", str(folder), "--strange",
            "--address", f"unix:{place}/robot", "--token", f"{place}/token",
            "--watchdog", f"{WATCHDOG_S:g}s", "--attached",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            give_up_s = clock.now_s() + _START_S
            while not (place / "token").exists():
                if process.poll() is not None or clock.now_s() > give_up_s:
                    said.seek(0)
                    told = said.read().decode(errors="replace")[-500:]
                    raise RuntimeError(f"the robot's process did not start: {told}")
                clock.sleep_until(clock.now_s() + 0.05)
            word = addresses.read_token(place / "token")
            with RemoteRobot(f"unix:{place}/robot", word) as robot:
                yield robot
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end; if it does not, it is killed."""
    process.terminate()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# --- On disk -------------------------------------------------------------------------------------


def kept(path: Path, key: dict[str, Any]) -> list[Grasp]:
    """The grasps in a file, if they are of this job."""
    try:
        first, *lines = read_text(path, _LARGEST).splitlines()
        if json.loads(first) != json.loads(json.dumps(key)):
            return []
        return [Grasp(**json.loads(line)) for line in lines]
    except Missing:
        return []
    except (ValueError, TypeError):
        raise ValueError(f"{path} is damaged: remove it, and its grasps are made again") from None


def write_kept(path: Path, key: dict[str, Any], grasps: list[Grasp]) -> None:
    lines = [json.dumps(key), *(json.dumps(one.to_dict()) for one in grasps)]
    write_whole(path, "\n".join(lines) + "\n")
