"""The one grid engine: every trial of a specification, on any engine, with all of it on the screen.

A sweep of hyperparameters and an experiment of a few arms and seeds are the same here. What has
been done is what lies on disk: trials go on where they were, finished ones are not run again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from midstride.disk.code import code_version
from midstride.disk.files import NOT_WRITTEN
from midstride.disk.runs import read_result
from midstride.latency_text import latency_name
from midstride.learn.agents import Training
from midstride.scale.jobs import KILLED, Engine, Job
from midstride.scale.show import status
from midstride.scale.words import format_return, plain, printable
from midstride.sweep.disk import (
    FAILURE,
    OLD,
    claim,
    outcome,
    put_aside,
    record_failure,
    write_table,
)
from midstride.sweep.spec import Spec, Trial, expand

RETRIES = 2  # of a trial whose process was killed


@dataclass(frozen=True)
class Grid:
    """What came of all trials: the rows of table.csv, and of each arm the finished trials."""

    rows: list[dict[str, Any]]
    trainings: dict[str, list[Training]]
    folders: dict[str, list[Path]]
    results: dict[str, list[dict[str, Any]]]

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["status"] == "failed"]

    @property
    def seconds(self) -> float:
        """Of all trainings, one after another."""
        return float(sum(r["seconds"] for group in self.results.values() for r in group))


def run_grid(
    spec: Spec,
    trials: int | None,
    folder: Path,
    engine: Engine,
    console: Console,
    retry_failed: bool = False,
    any_code: bool = False,
) -> Grid:
    """Run what has not been run yet, and write table.csv; an error if every trial failed.

    trials: draws in each arm, or all combinations if None
    any_code: take trials that other code made, if their settings agree
    """
    every = expand(spec, trials)
    check_trials(every)
    code_version()  # as it is now: it may be changed while trials run
    claim(folder, _record(spec, every))
    ended = {t: outcome(folder / t.place, t.training.hash, any_code) for t in every}
    if retry_failed:
        ended = {t: None if found and "reason" in found else found for t, found in ended.items()}
    waiting = [trial for trial, found in ended.items() if found is None]
    aside = sum(put_aside(folder, t.place, t.training.hash, any_code) for t in waiting)
    if aside:
        console.print(
            f"{aside} trials were made by other settings or by other code: they are in "
            f"{folder / OLD}, and are trained again.",
            markup=False,
        )
    display = _Display(spec, ended)
    with Live(display, console=console, refresh_per_second=2):
        _run(spec, every, waiting, folder, engine, display, any_code)
    grid = gather(spec, every, folder, any_code)
    write_table(folder, grid.rows)
    done = sum(map(len, grid.results.values()))
    others = sum(read_result(folder / trial.place) is not None for trial in every) - done
    if others:
        console.print(
            f"{others} trials were finished by other code than the sweep began "
            "with, which was changed meanwhile: the same command trains them again.",
            markup=False,
        )
    reasons = Counter(row["reason"] for row in grid.failed)
    for reason, count in reasons.items():
        console.print(Text.assemble((f"{count} failed", "red"), ": ", printable(reason)))
    if grid.rows and len(grid.failed) == len(grid.rows):
        raise RuntimeError(f"every trial of {spec.name} failed: {reasons.most_common(1)[0][0]}")
    return grid


def check_trials(trials: Sequence[Trial]) -> None:
    """An error before anything starts if a training does not fit together."""
    # Making an environment takes time: one is made for all trials that only learn differently.
    distinct = {
        (
            trial.training.environment,
            trial.training.agent.agent,
            trial.training.agent.observes_switch,
        ): trial
        for trial in reversed(trials)
    }
    for trial in distinct.values():
        try:
            trial.training.check()
        except ValueError as error:
            raise ValueError(f'[arms."{trial.arm}"], draw {trial.draw}: {error}') from None


def _run(
    spec: Spec,
    every: Sequence[Trial],
    waiting: list[Trial],
    folder: Path,
    engine: Engine,
    display: _Display,
    any_code: bool,
) -> None:
    """Trials that were killed are tried again; other failures are recorded."""
    for _ in range(1 + RETRIES):
        killed = []
        for i, kind, content in engine([_job(folder, trial) for trial in waiting]):
            trial = waiting[i]
            if kind == "error" and content == KILLED:
                killed.append(trial)
            elif kind == "error" and NOT_WRITTEN in content:
                raise OSError(content)  # the disk failed, not the trial: it goes on another time
            elif kind == "error":
                record_failure(folder / trial.place, content)
            elif kind == "result":
                (folder / trial.place / FAILURE).unlink(missing_ok=True)
            display.update(trial, kind, content)
            if kind in ("result", "error"):
                write_table(folder, gather(spec, every, folder, any_code).rows)
        waiting = killed
        if not waiting:
            return
    for trial in waiting:
        record_failure(folder / trial.place, f"{KILLED}, {1 + RETRIES} times")


def _job(folder: Path, trial: Trial) -> Job:
    name = f"{trial.arm} #{trial.draw}"
    return Job(name, trial.training, folder / trial.place, unfinished="resume")


def gather(spec: Spec, trials: Sequence[Trial], folder: Path, any_code: bool = False) -> Grid:
    """What lies on disk of the trials that have ended, in their order."""
    arms = spec.arms
    grid = Grid([], {a: [] for a in arms}, {a: [] for a in arms}, {a: [] for a in arms})
    for trial in trials:
        found = outcome(folder / trial.place, trial.training.hash, any_code)
        if found is None:
            continue
        grid.rows.append(_row(spec, trial, found))
        if "reason" not in found:
            grid.trainings[trial.arm].append(trial.training)
            grid.folders[trial.arm].append(folder / trial.place)
            grid.results[trial.arm].append(found)
    return grid


def _row(spec: Spec, trial: Trial, found: dict[str, Any]) -> dict[str, Any]:
    failed = "reason" in found
    low, high = ("", "") if failed else found["interval"]
    settings = {k: v for part in trial.training.to_dict().values() for k, v in part.items()}
    return {
        "arm": trial.arm,
        "draw": trial.draw,
        "status": "failed" if failed else "done",
        "mean_return": "" if failed else found["mean_return"],
        "low": low,
        "high": high,
        **{name: _cell(settings.get(name, "")) for name in spec.swept},
        "reason": found.get("reason", ""),
    }


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("replay:"):
        return latency_name(value)
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def _record(spec: Spec, trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        "name": spec.name,
        "hash": spec.hash,
        "draws": 1 + max(trial.draw for trial in trials),
        "arms": list(spec.arms),
        "swept": list(spec.swept),
        "design": spec.design.to_dict(),
        "specification": spec.source,
    }


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
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self.task = self.bar.add_task(printable(spec.name), total=sum(self.total.values()), left="")

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
                plain(arm),
                f"{len(returns)}/{self.total[arm]}",
                str(self.failed[arm] or ""),
                str(sum(trial.arm == arm for trial in self.running) or ""),
                format_return(float(np.mean(returns))) if returns else "",
                format_return(max(returns)) if returns else "",
            )
        done, elapsed = self._ended - self.before, time.monotonic() - self.started
        left = ""
        if done:
            seconds = elapsed / done * (sum(self.total.values()) - self._ended)
            left = f"{seconds // 3600:.0f}:{seconds % 3600 // 60:02.0f} h left"
        self.bar.update(self.task, completed=self._ended, left=left)
        lines = [plain(f"{t.arm} #{t.draw}: {text}") for t, text in self.running.items()]
        return Group(table, self.bar, *lines)
