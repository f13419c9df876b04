"""Several Ray nodes on this machine that come and go, and the processes that run on them.

What is simulated: nodes are groups of processes of one machine (`ray.cluster_utils.Cluster`). They
share its disk, its clock and its cores. That nothing relies on the disk is seen to: every node runs
in an empty folder of its own, and what its workers have open is looked at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROLES = ("Collector", "Memory", "Updater", "Fitter", "Judge")
_FIRST_NODES = 3  # beside the head, which holds what Ray knows and is never killed
_CORES = 1


class Process(NamedTuple):
    """A process by its number, and when it was started: numbers are used again."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return bool(self.started) and _started(self.pid) == self.started


class Nodes:
    """A Ray cluster of which nodes are killed and added.

    place: for their folders
    """

    def __init__(self, place: Path) -> None:
        from midstride.scale import ray as ours

        # Before Ray is imported: who has no token is not let in; nodes may start slowly here.
        ours._close_doors(starts=True)
        os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
        from ray.cluster_utils import Cluster

        self._place, self.folders = place, 0
        self.ever: set[Process] = set()  # all that ran here
        before = os.getcwd()
        os.chdir(self._folder())
        try:
            self._cluster: Any = Cluster(
                initialize_head=True,
                head_node_args={"num_cpus": _CORES, "include_dashboard": False},
            )
        finally:
            os.chdir(before)
        self.others: list[Any] = []
        for _ in range(_FIRST_NODES):
            self.add()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def _folder(self) -> Path:
        """The next empty folder to run in."""
        folder = self._place / f"node{self.folders}"
        folder.mkdir(parents=True)
        self.folders += 1
        return folder

    def add(self) -> None:
        before = os.getcwd()
        os.chdir(self._folder())
        try:
            self.others.append(self._cluster.add_node(num_cpus=_CORES))
        finally:
            os.chdir(before)

    def kill(self, which: int) -> None:
        """All processes of a node at once, and what they hold."""
        self.workers()
        self._cluster.remove_node(self.others.pop(which), allow_graceful=False)

    def workers(self) -> dict[Process, str]:
        """Workers that are there, each with its title: the actor that it is, or ray::IDLE.

        A node's agents are left out: with one of them the whole node ends, the head too.
        """
        found: dict[Process, str] = {}
        for node in (self._cluster.head_node, *self.others):
            for info in node.all_processes.get("raylet", []):
                for pid in _descendants(info.process.pid):
                    title = _title(pid)
                    process = Process(pid, _started(pid))
                    self.ever.add(process)
                    if title.startswith("ray::") and "Agent" not in title:
                        found[process] = title
        return found

    def actors(self) -> dict[Process, str]:
        """Those of a training, each with its role."""
        found = {}
        for process, title in self.workers().items():
            role = title.removeprefix("ray::").partition(".")[0].partition(":")[0]
            if role in ROLES:
                found[process] = role
        return found

    def shutdown(self) -> list[Process]:
        """End all; the processes that are still there after a while."""
        self.workers()
        self._cluster.shutdown()
        return left_after(self.ever, 120)  # workers of a killed node end when they notice


def left_after(processes: set[Process], seconds: float) -> list[Process]:
    """Those that are still alive when the time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(one.is_alive for one in processes):
        time.sleep(0.2)
    return [one for one in processes if one.is_alive]


def open_below(process: Process, folder: Path) -> list[str]:
    """Files in a folder that a process has open, or is in."""
    found: list[str] = []
    with suppress(OSError):
        links = [Path(f"/proc/{process.pid}/cwd"), *Path(f"/proc/{process.pid}/fd").iterdir()]
        for link in links:
            with suppress(OSError):
                target = os.readlink(link)
                if target.startswith(str(folder)):
                    found.append(target)
    return found


def _descendants(pid: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        stat = _stat(int(name))
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(int(name))
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child)
            yield child


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the name: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _started(pid: int) -> str:
    """When a process was started, in the system's ticks; "" if it has ended."""
    stat = _stat(pid)
    return "" if stat is None or stat[0] == "Z" else stat[19]


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""
