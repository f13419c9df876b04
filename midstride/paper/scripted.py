"""Scripted grasping: blocking and concurrent control without learning, on all objects (minutes).

Writes table.md, episodes.csv and config.json.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from midstride.disk.files import write_provenance
from midstride.envs.vector import MEASURES
from midstride.measure.evaluate import Episode, evaluate
from midstride.measure.statistics import share_interval
from midstride.paper.study import show_table
from midstride.scale.words import saved
from midstride.settings import Range, Settings
from midstride.sweep.disk import write_csv
from midstride.tasks.grasp import scripted
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.grasp.objects import OBJECT_SETS
from midstride.tasks.grasp.settings import GraspSettings

ENVS = 50
OBJECTS = 3


@dataclass(frozen=True)
class Options(Settings):
    """Options of the experiment."""

    kind: ClassVar[str] = "option"

    episodes: Annotated[int, Range(1)] = 500
    """how many episodes of each policy, mode and set of objects; rounded up to whole fifties"""
    output: str = "results/scripted"
    """folder for the table, the episodes and the configuration"""


@dataclass
class Scripted:
    """A scripted policy as one that is evaluated: it looks into its environments."""

    envs: GraspVectorEnv
    name: str  # privileged: knows where the objects are; blind: sees nothing
    rng: np.random.Generator
    description: dict[str, Any]

    @property
    def observation_size(self) -> int:
        return len(self.envs.layout.columns)

    def __call__(self, observation: Any) -> NDArray[np.floating]:
        world = self.envs.world
        if self.name == "privileged":
            return scripted.privileged(world, self.envs.next_latency_ticks())
        return scripted.blind(world, self.envs.steps_taken, self.rng)

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """Nothing is remembered."""


def grasp(envs: Any, policy: str, episodes: int) -> list[Episode]:
    """Episodes of a scripted policy, as many of each environment."""
    return evaluate(Scripted(envs, policy, np.random.default_rng(0), {}), envs, episodes, seed=0)


def reproduce(options: Options, console: Console) -> None:
    """Both modes, both policies, all objects: success, duration, completion, jerk."""
    started, output = time.perf_counter(), Path(options.output)
    episodes = -(-options.episodes // ENVS) * ENVS
    work = [
        (mode, policy, objects)
        for mode in ("blocking", "concurrent")
        for policy in ("privileged", "blind")
        for objects in OBJECT_SETS
    ]
    rows, records = [], []
    for mode, policy, objects in track(work, "grasping", console=console):
        values = {"mode": mode, "object_set": objects, "observation": "state", "objects": OBJECTS}
        found = grasp(GraspSettings.from_dict(values).make(ENVS, None), policy, episodes)
        measures = {name: np.array([e.measures[name] for e in found]) for name in MEASURES}
        each = zip(*measures.values(), strict=True)
        records += [[mode, policy, objects, *(f"{value:.6g}" for value in row)] for row in each]
        rows.append({"mode, policy, objects": f"{mode}, {policy}, {objects}", **cells(measures)})
    title = f"Scripted grasping, {OBJECTS} objects, {episodes} episodes each"
    show_table(title, rows, output / "table.md", console)
    write_csv(output / "episodes.csv", ["mode", "policy", "objects", *MEASURES], records)
    config = {"episodes": episodes, "latency_s": 0.1, "period_s": 0.3, "objects": OBJECTS}
    write_provenance(output, config, time.perf_counter() - started)
    console.print(saved(output))


def cells(measures: dict[str, NDArray[np.floating]]) -> dict[str, str]:
    """The columns of a row."""
    low, high = share_interval(measures["success"])
    return {
        "success": f"{measures['success'].mean():.1%}",
        "95 % interval": f"{low:.1%} to {high:.1%}",
        "duration": f"{measures['duration_s'].mean():.2f} s",
        "completion": f"{measures['completion'].mean():.0%}",
        "until the switch": f"{measures['completion_until_switch'].mean():.0%}",
        "jerk": f"{measures['jerk'].mean():.0f} m/s³",
        "squared, over the episode": f"{measures['squared_jerk'].mean():.0f} m²/s⁵",
        "path": f"{measures['path_m'].mean():.2f} m",
    }
