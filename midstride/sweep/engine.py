"""Running a sweep: trials go to an engine, what comes of them goes to disk and to the screen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from midstride.scale.local import KILLED, Event, Job, run_jobs, status
from midstride.sweep.disk import claim, job, outcome, record_failure, table_rows, write_table
from midstride.sweep.spec import Spec, Trial, expand

RETRIES = 2  # of a trial whose process was killed
Engine = Callable[[Sequence[Job]], Iterator[Event]]


def run_sweep(
    spec: Spec,
    trials: int | None,
    folder: Path,
    engine: Engine,
    console: Console,
    retry_failed: bool = False,
) -> list[dict[str, Any]]:
    """Run what has not been run yet; the rows of the table."""
    all_trials = expand(spec, trials)
    claim(folder, spec, all_trials)
    ended = {trial: outcome(folder, trial) for trial in all_trials}
    if retry_failed:
        ended = {t: None if found and "reason" in found else found for t, found in ended.items()}
    display = _Display(spec, ended)
    waiting = [trial for trial, found in ended.items() if found is None]
    with Live(display, console=console, refresh_per_second=2):
        for _ in range(1 + RETRIES):
            killed = []
            for i, kind, content in engine([job(folder, trial) for trial in waiting]):
                trial = waiting[i]
                if kind == "error" and content == KILLED:
                    killed.append(trial)
                elif kind == "error":
                    record_failure(folder, trial, content)
                display.update(trial, kind, content)
                if kind in ("result", "error"):
                    write_table(folder, table_rows(folder, spec, all_trials))
            waiting = killed
            if not waiting:
                break
        for trial in waiting:
            record_failure(folder, trial, f"{KILLED}, {1 + RETRIES} times")
    rows = table_rows(folder, spec, all_trials)
    write_table(folder, rows)
    for reason, count in Counter(row["reason"] for row in rows if row["reason"]).items():
        console.print(f"[red]{count} failed[/red]: {reason}")
    return rows


def local(workers: int | None) -> Engine:
    """One process per core on this machine."""
    return lambda jobs: run_jobs(jobs, workers)


def make_engine(name: Literal["local", "ray"], workers: int | None, address: str | None) -> Engine:
    """An engine by name; an error in one sentence if it cannot be had."""
    if name == "local":
        if address is not None:
            raise ValueError("--address is the address of a Ray cluster: add --engine ray")
        return local(workers)
    from midstride.scale.ray import connect, run_on_ray

    connect(address, workers)
    return run_on_ray


class _Display:
    """All trials at a glance: by arm, what is running, and the time left."""

    def __init__(self, spec: Spec, ended: dict[Trial, dict[str, Any] | None]) -> None:
        self.arms = list(spec.arms)
        self.total = Counter(trial.arm for trial in ended)
        self.running: dict[Trial, str] = {}
        self.returns: dict[str, list[float]] = {arm: [] for arm in self.arms}
        self.failed: Counter[str] = Counter()
        for trial, found in ended.items():
            if found is not None:
                self._end(trial, found)
        self.before = self._ended
        self.started = time.monotonic()
        self.bar = Bars(
            TextColumn(spec.name),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self.task = self.bar.add_task("", total=sum(self.total.values()), left="")

    @property
    def _ended(self) -> int:
        return sum(map(len, self.returns.values())) + self.failed.total()

    def _end(self, trial: Trial, found: dict[str, Any]) -> None:
        if "reason" in found:
            self.failed[trial.arm] += 1
        else:
            self.returns[trial.arm].append(found["mean_return"])

    def update(self, trial: Trial, kind: str, content: Any) -> None:
        if kind == "started":
            self.running[trial] = "starting"
        elif kind == "progress":
            self.running[trial] = status(content)
        else:
            self.running.pop(trial, None)
            if kind == "result":
                self._end(trial, content)
            elif content != KILLED:
                self._end(trial, {"reason": content})

    def __rich__(self) -> Group:
        table = Table("arm", box=None, pad_edge=False)
        for heading in ("done", "failed", "running", "mean", "best"):
            table.add_column(heading, justify="right")
        for arm in self.arms:
            returns = self.returns[arm]
            table.add_row(
                arm,
                f"{len(returns)}/{self.total[arm]}",
                str(self.failed[arm] or ""),
                str(sum(trial.arm == arm for trial in self.running) or ""),
                f"{np.mean(returns):.0f}" if returns else "",
                f"{max(returns):.0f}" if returns else "",
            )
        done, elapsed = self._ended - self.before, time.monotonic() - self.started
        left = ""
        if done:
            seconds = elapsed / done * (sum(self.total.values()) - self._ended)
            left = f"{seconds // 3600:.0f}:{seconds % 3600 // 60:02.0f} h left"
        self.bar.update(self.task, completed=self._ended, left=left)
        lines = [Text(f"{t.arm} #{t.draw}: {text}") for t, text in self.running.items()]
        return Group(table, self.bar, *lines)
