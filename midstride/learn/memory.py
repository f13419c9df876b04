"""What cannot fit into memory is refused before it starts, with the setting that would fit.

Memory is taken when it is first written to: a replay that is too large would otherwise fill up for
hours, until the system kills the training.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from midstride.envs.learnable import Environment, LearnableEnvs
from midstride.learn.agent import Agent
from midstride.learn.agent_settings import AgentSettings, RunSettings

_COPIES = 2  # of a replay: itself, and what a checkpoint is written from


def check_environments(environment: Environment, run: RunSettings) -> None:
    """An error if so many environments cannot fit."""
    free = available_bytes()
    if free is not None and run.num_envs * environment.bytes_each > free:
        raise ValueError(
            f"num_envs {run.num_envs:,} needs about {_size(run.num_envs * environment.bytes_each)} "
            f"of memory, and {_size(free)} are free: at most {free // environment.bytes_each:,} fit"
        )


def make_agent(
    kind: type[Agent], settings: AgentSettings, run: RunSettings, envs: LearnableEnvs, rng: Any
) -> Agent:
    """An agent, or an error if what it will remember cannot fit."""
    name, size = settings.remembers
    try:
        agent: Agent = kind(settings, run, envs, rng)  # type: ignore[arg-type, call-arg]
    except MemoryError as error:
        raise ValueError(f"{name} {size:,} cannot fit into memory: {error}") from None
    held = sum(array.nbytes for array in agent.replay.data.values())
    each = _COPIES * held / (agent.replay.length * run.num_envs)
    count = min(size, run.steps)
    free = available_bytes()
    if free is not None and count * each > free:
        raise ValueError(
            f"{name} {size:,} needs {_size(count * each)} of memory, and "
            f"{_size(free)} are free: at most {int(free / each):,} fit"
        )
    return agent


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that can still be had, here or in this container; None where nobody says."""
    found = [_of_system(root), *_of_groups(root)]
    return min((free for free in found if free is not None), default=None)


def _of_system(root: Path) -> int | None:
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return None


def _of_groups(root: Path) -> list[int]:
    """What is left of the limits of Linux's control groups: those of containers, and of Slurm."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if kinds else "")
        limit, used = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if kinds
            else ("memory.max", "memory.current")
        )
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):  # a group has what all around it leave
            if folder.is_relative_to(base):
                with suppress(OSError, ValueError):  # "max": no limit; or not to be seen from here
                    free = _number(folder / limit) - _number(folder / used)
                    found.append(max(0, free + _cached(folder)))
    return found


def _cached(folder: Path) -> int:
    """Files that the system keeps in memory, and forgets when it is asked for."""
    with suppress(OSError, ValueError, IndexError):
        for line in (folder / "memory.stat").read_text().splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                return int(line.split()[1])
    return 0


def _number(path: Path) -> int:
    return int(path.read_text())


def _size(count: float) -> str:
    """Bytes for people."""
    power = int(np.clip(np.log10(max(count, 1)) // 3, 0, 5))
    return f"{count / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB', 'PB')[power]}"
