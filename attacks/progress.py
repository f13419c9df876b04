"""How far an attack is, and when it must end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


@dataclass
class Section:
    """A part of an attack under way."""

    bars: Progress
    bar: TaskID
    end: float

    def show(self, done: int) -> None:
        """Tell how many tries are done; on a screen by the bar, in a file a line now and then."""
        self.bars.update(self.bar, completed=done)
        task = self.bars.tasks[self.bar]
        if self.bars.console.is_terminal:
            self.bars.refresh()
        elif done % max(1, int(task.total or 0) // 20) == 0:
            print(f"{task.description}: {done}", file=sys.stderr, flush=True)

    def goes_on(self) -> bool:
        return time.monotonic() < self.end


@dataclass(frozen=True)
class Bounds:
    """When all must have ended, by the monotonic clock, and where progress is shown."""

    end: float
    console: Console

    @property
    def left_s(self) -> float:
        return max(0.0, self.end - time.monotonic())

    @contextmanager
    def section(self, name: str, total: int) -> Iterator[Section]:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, auto_refresh=False) as bars:
            yield Section(bars, bars.add_task(name, total=total), self.end)
            bars.refresh()
