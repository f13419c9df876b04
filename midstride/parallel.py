"""Several trainings at once: one process per core, a progress bar for each.

Two single-core processes side by side beat one process on two cores, so each is pinned to one.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from midstride.config import Config
from midstride.envs import available_cores
from midstride.train import Progress, train


@dataclass(frozen=True)
class Job:
    """A training to do."""

    name: str
    config: Config
    folder: Path


def progress_bars(console: Console) -> Bars:
    """Bars with what one wants to know of a training."""
    return Bars(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(compact=True),
        console=console,
    )


def status(progress: Progress) -> str:
    return (
        f"{progress.steps:>7,} steps {progress.steps_per_second:>5,.0f}/s "
        f"return {progress.mean_return:>4.0f} eps {progress.epsilon:.2f}"
    )


def train_all(
    jobs: Sequence[Job], console: Console, resume: bool = False, workers: int | None = None
) -> list[dict[str, Any]]:
    """Train every job; results in order. A failed job raises after the others have finished.

    Ctrl-C reaches every worker, each of which saves a checkpoint.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    workers = min(workers or available_cores(), len(jobs))
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    waiting = list(enumerate(jobs))
    running: dict[Any, int] = {}  # process -> which of the cores
    results: dict[int, dict[str, Any]] = {}
    errors: dict[int, str] = {}
    with progress_bars(console) as bars:
        ids = [bars.add_task(job.name, total=job.config.steps, status="waiting") for job in jobs]
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    i, job = waiting.pop(0)
                    free = next(k for k in range(workers) if k not in running.values())
                    core = cores[free % len(cores)] if cores else None
                    process = context.Process(
                        target=_work, args=(i, job, resume, core, messages), daemon=True
                    )
                    process.start()
                    running[process] = free
                _collect(messages, bars, ids, results, errors)
                for process in [p for p in running if not p.is_alive()]:
                    process.join()
                    del running[process]
            _collect(messages, bars, ids, results, errors)
        except KeyboardInterrupt:
            for process in running:
                process.join(timeout=30)
            raise
    for i, job in enumerate(jobs):
        if i not in results:
            raise RuntimeError(f"{job.name} failed: {errors.get(i, 'its process was killed')}")
    return [results[i] for i in range(len(jobs))]


def _collect(
    messages: Any,
    bars: Bars,
    ids: Sequence[TaskID],
    results: dict[int, dict[str, Any]],
    errors: dict[int, str],
) -> None:
    try:
        i, kind, content = messages.get(timeout=0.2)
    except queue.Empty:
        return
    if kind == "progress":
        bars.update(ids[i], completed=content.steps, status=status(content))
    elif kind == "result":
        results[i] = content
        low, high = content["interval"]
        text = f"return {content['mean_return']:.0f} [{low:.0f}, {high:.0f}]"
        bars.update(ids[i], completed=content["steps"], status=text)
    else:
        errors[i] = content
        bars.update(ids[i], status=f"[red]{content}")


def _work(i: int, job: Job, resume: bool, core: int | None, messages: Any) -> None:
    """One training, in its own process on its own core."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = train(
            job.config,
            job.folder,
            resume,
            on_progress=lambda progress: messages.put((i, "progress", progress)),
        )
        messages.put((i, "result", result))
    except KeyboardInterrupt:
        messages.put((i, "error", "interrupted; a checkpoint is saved"))
    except (ValueError, OSError, RuntimeError) as error:
        messages.put((i, "error", str(error)))
