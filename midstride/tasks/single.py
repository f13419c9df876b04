"""One environment of a task."""

from __future__ import annotations

from typing import Any

from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode

from midstride.envs.single import OneEnv
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.settings import TaskSettings


class TaskEnv(OneEnv):
    """One concurrent environment: the vector environment of one, unpacked.

    Takes the settings of `TaskVectorEnv`; with the same seed it gives the same numbers.
    """

    def __init__(
        self,
        task: str | TaskSettings,
        render_mode: str | None = None,
        observe_switch: bool = False,
        **settings: Any,
    ) -> None:
        if isinstance(task, str):
            task = TaskSettings.from_dict({"task": task, **settings})
        EzPickle.__init__(self, task, render_mode, observe_switch)
        self._unpack(TaskVectorEnv(task, 1, 1, AutoresetMode.DISABLED, render_mode, observe_switch))
