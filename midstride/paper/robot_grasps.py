"""Grasps of a trained policy on a robot, on the wall clock or on a virtual one; each is kept."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from midstride.disk.files import versions, write_whole
from midstride.disk.read import Missing, read_text
from midstride.latency_text import read_latency
from midstride.learn.agents import Training
from midstride.policies import load
from midstride.realtime import addresses
from midstride.realtime.clock import Clock, VirtualClock, WallClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.drive import Run, plan_of
from midstride.realtime.grasps import Grasp, Grasper, grasp
from midstride.realtime.hand import HandBody
from midstride.realtime.recording import Recalls
from midstride.realtime.remote import RemoteRobot
from midstride.realtime.runtime import Mode
from midstride.realtime.strange import Strange
from midstride.tasks.grasp.settings import PERIOD_S, GraspSettings

ClockName = Literal["wall", "virtual"]
WATCHDOG_S = 2.0  # longer than a motion that runs to its end, and a thought after it
_LARGEST = 2**24  # bytes of a file of grasps
_START_S = 60.0  # that a robot's process may take
# Called after each grasp of a run: its number, what it was, and the robot, at rest.
OnGrasp = Callable[[int, Run, Recalls], None]


@dataclass(frozen=True)
class Job:
    """A policy that is to grasp, how it is run, and where its grasps are kept."""

    training: Training
    folder: Path  # of the training
    mode: Mode
    clock: ClockName
    kept: Path

    def key(self, strange: Strange) -> dict[str, Any]:
        """What a file of grasps must say to be gone on with."""
        return {
            "training": self.training.hash,
            "mode": self.mode,
            "clock": self.clock,
            "body": asdict(strange),
            "version": versions().get("midstride"),
        }


def grasps_of(
    job: Job, count: int, strange: Strange, on_grasp: OnGrasp = lambda k, run, robot: None
) -> Iterator[Grasp]:
    """The first `count` grasps of a job: those that are kept, and then new ones, each kept."""
    found = kept(job.kept, job.key(strange))[:count]
    yield from found
    if len(found) == count:
        return
    settings = job.training.environment
    assert isinstance(settings, GraspSettings)
    policy = load(job.folder)
    envs = settings.small().make(1)
    trained = envs.layout, envs.timing
    envs.close()
    latency = strange.latency(read_latency(settings.latency))
    period_s = PERIOD_S if job.mode == "concurrent" else None
    with _robots(job, settings, strange) as robot_for_a_grasp:
        for k in range(len(found), count):
            robot, clock = robot_for_a_grasp()
            plan = plan_of(robot.declared, trained, job.mode, period_s)
            plan = replace(plan, latency=latency, seed=k)
            one, run = grasp(robot, policy, plan, clock, k, settings.max_steps)
            found.append(one)
            write_kept(job.kept, job.key(strange), found)
            assert isinstance(robot, Recalls)
            on_grasp(k, run, robot)
            yield one


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
    """A client of `midstride robot grasp --strange`, in a process of its own while this lasts."""
    clock = WallClock()
    with tempfile.TemporaryDirectory(prefix="midstride-hand-") as name:
        place = Path(name)
        command = [
            sys.executable, "-m", "midstride", "robot", "grasp", "--like", str(folder), "--strange",
            "--address", f"unix:{place}/robot", "--token", f"{place}/token",
            "--watchdog", f"{WATCHDOG_S:g}s",
        ]  # fmt: skip
        with (place / "said.txt").open("wb") as said:
            process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        try:
            give_up_s = clock.now_s() + _START_S
            while not (place / "token").exists():
                if process.poll() is not None or clock.now_s() > give_up_s:
                    told = (place / "said.txt").read_text()[-500:]
                    raise RuntimeError(f"the robot's process did not start: {told}")
                clock.sleep_until(clock.now_s() + 0.05)
            with RemoteRobot(f"unix:{place}/robot", addresses.read_token(place / "token")) as robot:
                yield robot
        finally:
            process.terminate()
            process.wait(timeout=30)


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
