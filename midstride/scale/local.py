"""Several trainings at once: worker processes, one per core, each pinned to its own.

Two single-core processes side by side beat one process on two cores. A worker does one job after
another, so that what it has imported and compiled serves them all. A worker that dies takes only
its job with it; workers whose parent dies end themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from midstride.envs.checks import available_cores
from midstride.learn.signals import held_interrupts, interrupt, raised_signals
from midstride.scale.jobs import KILLED, Event, Job, do, reason

_GRACE_S = 30.0  # for a worker to save its checkpoint


@dataclass
class _Worker:
    process: Any
    pipe: Any
    job: int | None = None


def run_jobs(jobs: Sequence[Job], workers: int | None = None) -> Iterator[Event]:
    """Do all jobs, in worker processes; what happens, as it happens.

    At a signal that asks to end, every worker saves a checkpoint of its job before it goes on.
    """
    with raised_signals():
        yield from _run_jobs(jobs, workers)


def _run_jobs(jobs: Sequence[Job], workers: int | None) -> Iterator[Event]:
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
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
        with held_interrupts():  # signals are often sent twice: the first is being answered
            for worker in pool:
                if worker is not None:
                    _end(worker)


def _end(worker: _Worker) -> None:
    if worker.job is None:
        with suppress(OSError):
            worker.pipe.send(None)
    else:
        worker.process.terminate()  # raises Interrupted there: the job is saved
    while worker.process.is_alive() and worker.pipe.poll(_GRACE_S):
        try:
            worker.pipe.recv()
        except (EOFError, OSError):
            break
    worker.process.join(_GRACE_S)
    worker.process.kill()


def _work(pipe: Any, core: int | None) -> None:
    """A worker: one job after another, on its own core."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which tells us
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # so is the end of the terminal
    signal.signal(signal.SIGTERM, interrupt)
    if sys.platform == "linux" and core is not None:
        os.sched_setaffinity(0, {core})
    try:
        while True:
            job = pipe.recv()
            if job is None:
                return
            try:
                result = do(job, lambda progress: pipe.send(("progress", progress)))
                pipe.send(("result", result))
            except Exception as error:
                pipe.send(("error", reason(error)))
            _forget_compiled()
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        return


def die_with_parent() -> None:
    """In a process of `multiprocessing`: end when who started it has, however that came."""
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
