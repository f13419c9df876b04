"""Several trainings at once: worker processes, one per core, each pinned to its own.

Two single-core processes side by side beat one process on two cores. A worker does one job after
another, so that what it has imported and compiled serves them all. A worker that dies takes only
its job with it; workers whose parent dies end themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from midstride.envs.vector import available_cores
from midstride.learn.config import AnyConfig
from midstride.learn.train import Progress, train

_GRACE_S = 30.0  # for a worker to save its checkpoint
KILLED = "its process was killed"


@dataclass(frozen=True)
class Job:
    """A training to do."""

    name: str
    config: AnyConfig
    folder: Path
    # What to do with a folder that holds an unfinished run.
    unfinished: Literal["refuse", "resume", "restart"] = "refuse"
    tensorboard: bool = False
    scripted: Path | None = None  # folder of scripted data that jobs share


class Event(NamedTuple):
    """What is new about a job."""

    job: int
    kind: Literal["started", "progress", "result", "error"]
    content: Any = None


def do(job: Job, on_progress: Any = lambda progress: None) -> dict[str, Any]:
    """Do a job here and now."""
    if job.unfinished == "restart" and not (job.folder / "result.json").exists():
        shutil.rmtree(job.folder, ignore_errors=True)
    resume = job.unfinished != "refuse"
    return train(job.config, job.folder, resume, on_progress, job.tensorboard, job.scripted)


@dataclass
class _Worker:
    process: Any
    pipe: Any
    job: int | None = None


def run_jobs(jobs: Sequence[Job], workers: int | None = None) -> Iterator[Event]:
    """Do all jobs, in worker processes; what happens, as it happens.

    Interrupted, every worker saves a checkpoint of its job before the interrupt goes on.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    context = multiprocessing.get_context("spawn")
    pool: list[_Worker | None] = [None] * min(workers or available_cores(), len(jobs))

    def new_worker(k: int) -> _Worker:
        ours, theirs = context.Pipe()
        core = cores[k % len(cores)] if cores else None
        process = context.Process(target=_work, args=(theirs, core), daemon=True)
        process.start()
        theirs.close()  # so that its end is seen here
        return _Worker(process, ours)

    waiting = list(range(len(jobs)))[::-1]
    try:
        while True:
            for k, worker in enumerate(pool):
                if waiting and (worker is None or worker.job is None):
                    worker = pool[k] = worker or new_worker(k)
                    worker.job = waiting.pop()
                    worker.pipe.send(jobs[worker.job])
                    yield Event(worker.job, "started")
            busy: dict[Any, tuple[int, _Worker, int]] = {
                w.pipe: (k, w, w.job) for k, w in enumerate(pool) if w and w.job is not None
            }
            if not busy:
                return
            for pipe in connection.wait(list(busy)):
                k, worker, job = busy[pipe]
                try:
                    kind, content = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    kind, content, pool[k] = "error", KILLED, None
                if kind in ("result", "error"):
                    worker.job = None
                yield Event(job, kind, content)
    finally:
        for worker in pool:
            if worker is not None:
                _end(worker)


def _end(worker: _Worker) -> None:
    worker.process.terminate()  # raises KeyboardInterrupt there: a job under way is saved
    while worker.process.is_alive() and worker.pipe.poll(_GRACE_S):
        try:
            worker.pipe.recv()
        except (EOFError, OSError):
            break
    worker.process.join(_GRACE_S)
    worker.process.kill()


def _work(pipe: Any, core: int | None) -> None:
    """A worker: one job after another, on its own core."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which tells us
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        while True:
            job = pipe.recv()
            try:
                result = do(job, lambda progress: pipe.send(("progress", progress)))
                pipe.send(("result", result))
            except (ValueError, OSError, RuntimeError, ArithmeticError, MemoryError) as error:
                pipe.send(("error", str(error) or type(error).__name__))
            _forget_compiled()
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        return


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _forget_compiled() -> None:
    """Free what was compiled for a job; the next one of its shape finds it in the disk cache."""
    import jax

    jax.clear_caches()


# --- Bars ----------------------------------------------------------------------------------------


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
        f"return {_short(progress.mean_return)} eps {progress.epsilon:.2f}"
    )


def _short(value: float) -> str:
    """Returns of thousands, and returns of one."""
    return f"{value:>4.0f}" if abs(value) >= 10 else f"{value:>4.2f}"


def train_all(
    jobs: Sequence[Job], console: Console, workers: int | None = None
) -> list[dict[str, Any]]:
    """Train every job, with a bar each; results in order.

    A failed job raises, after the others have finished.
    """
    results: dict[int, dict[str, Any]] = {}
    errors: dict[int, str] = {}
    with progress_bars(console) as bars:
        ids = [bars.add_task(job.name, total=job.config.steps, status="waiting") for job in jobs]
        for i, kind, content in run_jobs(jobs, workers):
            if kind == "started":
                bars.update(ids[i], status="starting")
            elif kind == "progress":
                bars.update(ids[i], completed=content.steps, status=status(content))
            elif kind == "result":
                results[i] = content
                mean, low, high = (
                    _short(v).strip() for v in (content["mean_return"], *content["interval"])
                )
                text = f"return {mean} [{low}, {high}]"
                bars.update(ids[i], completed=content["steps"], status=text)
            else:
                errors[i] = content
                bars.update(ids[i], status=f"[red]{content}")
    for i, error in errors.items():
        raise RuntimeError(f"{jobs[i].name} failed: {error}")
    return [results[i] for i in range(len(jobs))]
