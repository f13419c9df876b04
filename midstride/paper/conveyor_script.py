"""Conveyor, by a script: grasping from a moving belt, concurrently and in hold (minutes).

A policy that knows where everything is, how fast the belt runs and when it will act goes where the
object will be. Thinking while it moves it goes along with the belt; in hold it rests for every
thought and runs every action to completion, and the object is gone. How far ahead a robot that
holds aims is the best of several, found in other episodes. Nothing is learned. Writes table.md,
episodes.csv, conveyor.png and config.json.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from midstride.disk.files import write_provenance
from midstride.envs.faults import closed_after
from midstride.measure.evaluate import Episode, evaluate
from midstride.measure.statistics import share_interval
from midstride.paper.study import show_table
from midstride.report.curves import save_figure
from midstride.scale.words import saved
from midstride.settings import Range, Settings
from midstride.sweep.disk import write_csv
from midstride.tasks.grasp import scripted
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.grasp.settings import ConveyorSettings

SPEEDS_M_S = (0.0, 0.1, 0.2, 0.3)
AHEADS_S = (0.1, 0.2, 0.3, 0.4)  # that a robot that holds may aim
ENVS, CHOOSING = 32, 32  # episodes that the best is chosen by
HOLD_STEPS = 20  # of an episode of a robot that holds; each takes about 0.4 s
ROBOTS: dict[str, dict[str, Any]] = {
    "concurrent, knowing": {},
    "concurrent, unaware": {},
    "hold": {"mode": "hold", "max_steps": HOLD_STEPS},
    "frozen while it thinks (oracle)": {"mode": "hold", "latency": "0", "max_steps": HOLD_STEPS},
}

Found = Mapping[tuple[str, float], list[Episode]]  # robot, speed in m/s


@dataclass(frozen=True)
class Options(Settings):
    """Options of the experiment."""

    kind: ClassVar[str] = "option"

    episodes: Annotated[int, Range(1)] = 128
    """how many episodes of each robot at each speed"""
    output: str = "results/conveyor-script"
    """folder for the table, the picture and the configuration"""


@dataclass
class Script:
    """A scripted policy as one that is evaluated: it looks into its environments."""

    envs: GraspVectorEnv
    knows: bool  # what its own motion will do until the switch
    ahead_s: float
    description: dict[str, Any]

    @property
    def observation_size(self) -> int:
        return len(self.envs.layout.columns)

    def __call__(self, observation: Any) -> NDArray[np.floating]:
        latency, ahead_s = self.envs.next_latency_ticks(), self.ahead_s
        if not self.knows:  # the belt it knows: the object will have moved on by then
            ahead_s += float(latency.max()) * self.envs.timing.tick_s
            latency = np.zeros_like(latency)
        return scripted.privileged(self.envs.world, latency, ahead_s=ahead_s)

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """Nothing is remembered."""


def reproduce(options: Options, console: Console) -> None:
    """Every robot at every speed: success and duration."""
    started, output = time.perf_counter(), Path(options.output)
    found: dict[tuple[str, float], list[Episode]] = {}
    aims: dict[str, float] = {}
    work = [(robot, speed) for robot in ROBOTS for speed in SPEEDS_M_S]
    for robot, speed in track(work, "grasping", console=console):
        ahead_s = 0.1  # the period
        if ROBOTS[robot]:
            shares = {a: _share(grasp(robot, speed, a, CHOOSING, seed=10_000)) for a in AHEADS_S}
            ahead_s = max(shares, key=lambda a: shares[a])
        aims[f"{robot}, {speed} m/s"] = ahead_s
        found[robot, speed] = grasp(robot, speed, ahead_s, options.episodes, seed=0)
    title = f"Grasping from a belt by a script, {options.episodes} episodes each"
    show_table(title, table_rows(found), output / "table.md", console)
    every = (
        [robot, speed, i, episode.measures["success"], f"{episode.measures['duration_s']:.6g}"]
        for (robot, speed), episodes in found.items()
        for i, episode in enumerate(episodes)
    )
    write_csv(
        output / "episodes.csv", ["robot", "belt_m_s", "episode", "success", "duration_s"], every
    )
    save_figure(output / "conveyor.png", plot(found))
    config = {"episodes": options.episodes, "latency": "100ms", "period": "100ms", "ahead_s": aims}
    write_provenance(output, config, time.perf_counter() - started)
    console.print(saved(output))


def grasp(robot: str, speed_m_s: float, ahead_s: float, episodes: int, seed: int) -> list[Episode]:
    """Episodes of a robot at a speed of the belt."""
    belt = {"belt_low": speed_m_s, "belt_high": speed_m_s}
    values = {"observation": "state", "latency": "100ms", "scenes": 256, **belt, **ROBOTS[robot]}
    settings = ConveyorSettings(**values)
    envs = GraspVectorEnv(ENVS, 1, settings=settings)
    with closed_after(envs):
        script = Script(envs, "unaware" not in robot, ahead_s, {})
        return evaluate(script, envs, episodes, seed)


def _share(episodes: list[Episode]) -> float:
    return float(np.mean([episode.measures["success"] for episode in episodes]))


def table_rows(found: Found) -> list[dict[str, str]]:
    """A row for each robot, a column for each speed: success with its 95 % interval."""
    rows = []
    for robot in dict.fromkeys(robot for robot, _ in found):
        row = {"robot": robot}
        for (name, speed), episodes in found.items():
            if name == robot:
                low, high = share_interval([episode.measures["success"] for episode in episodes])
                share = f"{_share(episodes):.0%} ({low:.0%} to {high:.0%})"
                row[f"{speed:g} m/s"] = share
        rows.append(row)
    return rows


def plot(found: Found) -> Figure:
    """Success against the speed of the belt, with 95 % intervals."""
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.subplots()
    for robot in dict.fromkeys(robot for robot, _ in found):
        at = [speed for name, speed in found if name == robot]
        values = [[e.measures["success"] for e in found[robot, speed]] for speed in at]
        shares = np.array([100 * np.mean(v) for v in values])
        bounds = 100 * np.array([share_interval(v) for v in values]).T
        spread = np.abs(bounds - shares)
        axes.errorbar(at, shares, spread, marker="o", capsize=3, label=robot)
    axes.set(xlabel="speed of the belt, m/s", ylabel="grasped, %", ylim=(-2, 103))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
