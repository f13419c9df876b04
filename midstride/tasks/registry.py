"""Environments by the name of their task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midstride.disk.read import in_file
from midstride.disk.runs import CONFIG, read_record
from midstride.envs.learnable import Environment
from midstride.envs.wrapped import WrappedSettings
from midstride.latency_text import latency_of_file
from midstride.settings import shown
from midstride.tasks.grasp.settings import ConveyorSettings, GraspSettings
from midstride.tasks.settings import TASKS, TaskSettings

NAMES = (*TASKS, "grasp", "conveyor")


def settings_of(task: str) -> type[Environment]:
    """The settings that the environments of a task have."""
    if task in TASKS:
        return TaskSettings
    if task == "grasp":
        return GraspSettings
    if task == "conveyor":
        return ConveyorSettings
    if task.startswith(("gym:", "dmc:")):
        return WrappedSettings
    raise ValueError(
        f"unknown task {shown(repr(task))}: choose from {', '.join(NAMES)}, gym:ID (a Gymnasium "
        "environment) or dmc:DOMAIN/TASK (DeepMind Control)"
    )


def environment_from(
    values: Mapping[str, Any], folder: Path | None = None, trust: bool = False
) -> Environment:
    """The environment that saved values describe; see `from_file`."""
    task = values.get("task")
    if not isinstance(task, str):
        raise ValueError("the settings of an environment need a task")
    return settings_of(task).from_dict(from_file(values, folder, trust))


def environment_of(folder: Path, trust: bool = False) -> Environment:
    """The environment of a run, from its record."""
    values = read_record(folder)["environment"]
    with in_file(folder / CONFIG):
        return environment_from(values, folder, trust)


def from_file(values: Any, folder: Path | None = None, trust: bool = False) -> Any:
    """Settings as a file has them, such that they run no code and read no file that is not theirs.

    What a user types is theirs. A file may be a stranger's: it names an environment that is
    registered, not a module to import, and traces of latencies in its own folder. All settings that
    come out of a file pass through here.

    folder: that of the file
    trust: take the settings as if they had been typed
    """
    if trust:
        return values
    if isinstance(values, Mapping):
        return {name: from_file(value, folder) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [from_file(value, folder) for value in values]
    if not isinstance(values, str):
        return values
    if values.startswith("gym:") and ":" in values.removeprefix("gym:"):
        raise ValueError(
            f"the task {shown(values)} would import a module, and comes from a file: if you know "
            "who wrote the file, add --trust (in Python: trust=True)"
        )
    return latency_of_file(values, folder)
