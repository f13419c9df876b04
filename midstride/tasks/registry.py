"""Environments by the name of their task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstride.envs.learnable import Environment
from midstride.envs.wrapped import WrappedSettings
from midstride.tasks.grasp.settings import GraspSettings
from midstride.tasks.settings import TASKS, TaskSettings

NAMES = (*TASKS, "grasp")


def settings_of(task: str) -> type[Environment]:
    """The settings that the environments of a task have."""
    if task in TASKS:
        return TaskSettings
    if task == "grasp":
        return GraspSettings
    if task.startswith(("gym:", "dmc:")):
        return WrappedSettings
    raise ValueError(
        f"unknown task {task!r}: choose from {', '.join(NAMES)}, gym:ID (a Gymnasium "
        "environment) or dmc:DOMAIN/TASK (DeepMind Control)"
    )


def environment_from(values: Mapping[str, Any]) -> Environment:
    """The environment that saved values describe."""
    task = values.get("task")
    if not isinstance(task, str):
        raise ValueError("the settings of an environment need a task")
    return settings_of(task).from_dict(values)
