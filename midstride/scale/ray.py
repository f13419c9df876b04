"""Trainings on a Ray cluster: the same jobs as in `local`, as Ray tasks.

A task trains in a folder of its own, wherever it runs, and sends the files back; the driver puts
them where a local worker would have written them. Nothing of the algorithm is here.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from midstride.disk.files import write_whole
from midstride.disk.runs import RESULT
from midstride.envs.checks import available_cores
from midstride.learn.signals import held_interrupts
from midstride.scale.jobs import KILLED, Event, Job, do, reason

LOST_WORKERS = 3  # times that Ray gives a task to another worker when its own is lost
_CONNECT_S = 5.0


def connect(address: str | None, workers: int | None = None) -> None:
    """Join the cluster at `address` ("auto": the one of this machine), or start one here.

    Who can reach a cluster can run code on it: only those with its token may, unless RAY_AUTH_MODE
    says otherwise. A cluster that is started here listens to this machine alone.
    """
    _close_doors(starts=address is None)
    try:
        import ray
    except ImportError:
        raise ValueError("Ray is missing: pip install 'midstride[ray]'") from None
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if ray.is_initialized():
        return
    if address is not None and address != "auto":
        _reach(address)
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        options |= {"num_cpus": workers or available_cores(), "include_dashboard": False}
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", **options)
    except ray.exceptions.AuthenticationError:
        raise ValueError(
            f"the Ray cluster at {address} does not accept this token: put its own in "
            "RAY_AUTH_TOKEN or ~/.ray/auth_token, or, if it has none, set RAY_AUTH_MODE=disabled"
        ) from None
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"no Ray cluster at {address}: {first} (if there is one, its token may be another than "
            "that of RAY_AUTH_TOKEN or ~/.ray/auth_token)"
        ) from None
    finally:  # Ray would end the process at once; ours saves what is under way
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def is_connected() -> bool:
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """`connect`; what was connected or started here is gone again in the end."""
    started = not is_connected()
    connect(address)
    try:
        yield
    finally:
        if started:
            with held_interrupts():
                sys.modules["ray"].shutdown()


def _close_doors(starts: bool) -> None:
    """Have Ray ask for a token. It reads these variables when it is imported.

    starts: a cluster of our own, with a token that nobody else gets to know, which ends with it
    """
    if "ray" in sys.modules:  # too late: what it was imported with counts
        return
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if not starts:
        return
    # Called after the systems on which it is the default: everything listens to 127.0.0.1 alone.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    kept = Path.home() / ".ray" / "auth_token"  # where Ray looks, and would write a new one
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys() and not kept.exists():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _reach(address: str) -> None:
    """Ray waits very long for a cluster that is not there: look first."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"a Ray address is HOST:PORT or auto, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise ValueError(f"no Ray cluster can be reached at {address}: {error}") from None


def run_on_ray(jobs: Sequence[Job]) -> Iterator[Event]:
    """Do all jobs as Ray tasks, one core each; what happens, as it happens."""
    import ray

    task = ray.remote(num_cpus=1, max_retries=LOST_WORKERS)(_train_there)
    pending = {task.remote(job): i for i, job in enumerate(jobs)}
    for i in pending.values():
        yield Event(i, "started")
    try:
        while pending:
            (ready,), _ = ray.wait(list(pending), num_returns=1)
            i = pending.pop(ready)
            try:
                kind, content, files = ray.get(ready)
            except ray.exceptions.WorkerCrashedError:
                kind, content, files = "error", KILLED, {}
            except ray.exceptions.RayError as error:
                kind, content, files = "error", str(error).strip().splitlines()[-1], {}
            for name in sorted(files, key=lambda name: name == RESULT):  # with it all is whole
                write_whole(jobs[i].folder / Path(name).name, files[name])  # nowhere else
            yield Event(i, kind, content)
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _train_there(job: Job) -> tuple[str, Any, dict[str, bytes]]:
    """A job on a worker: how it ended, and the files of its run."""
    with tempfile.TemporaryDirectory() as folder:
        here = replace(job, folder=Path(folder) / "run")
        try:
            result = do(here)
        except Exception as error:
            return "error", reason(error), {}
        files = {path.name: path.read_bytes() for path in here.folder.iterdir() if path.is_file()}
        return "result", result, files
