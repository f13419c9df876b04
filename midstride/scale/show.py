"""Trainings on the screen: a bar each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from midstride.learn.train import Progress
from midstride.scale.jobs import Engine, Job
from midstride.scale.local import run_jobs
from midstride.scale.words import format_return, printable


def progress_bars(console: Console) -> Bars:
    """Bars with what one wants to know of a training."""
    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[status]}", markup=False),
        TimeRemainingColumn(compact=True),
        console=console,
    )


def status(progress: Progress) -> str:
    """How a training is doing, in a line."""
    return (
        f"{progress.steps:>7,} steps {progress.steps_per_second:>5,.0f}/s "
        f"return {format_return(progress.mean_return):>4} eps {progress.epsilon:.2f}"
    )


def train_all(
    jobs: Sequence[Job], console: Console, engine: Engine = run_jobs
) -> list[dict[str, Any]]:
    """Train every job, with a bar each; results in order.

    A failed job raises, after the others have finished.
    """
    results: dict[int, dict[str, Any]] = {}
    errors: dict[int, str] = {}
    with progress_bars(console) as bars:
        ids = [
            bars.add_task(printable(job.name), total=job.training.run.steps, status="waiting")
            for job in jobs
        ]
        for i, kind, content in engine(jobs):
            if kind == "started":
                bars.update(ids[i], status="starting")
            elif kind == "progress":
                bars.update(ids[i], completed=content.steps, status=status(content))
            elif kind == "result":
                results[i] = content
                numbers = (content["mean_return"], *content["interval"])
                mean, low, high = (format_return(number) for number in numbers)
                text = f"return {mean} [{low}, {high}]"
                bars.update(ids[i], completed=content["steps"], status=text)
            else:
                errors[i] = content
                bars.update(ids[i], status=f"failed: {printable(content)}")
    for i, error in errors.items():
        raise RuntimeError(f"{jobs[i].name} failed: {error}")
    return [results[i] for i in range(len(jobs))]
