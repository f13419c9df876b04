"""Commands in processes that can be killed, cheaply.

Importing JAX takes seconds. It is done once, here; every command runs in a fork of this process, in
which no backend of JAX has started yet and no thread is running.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

LIMIT_S = 180.0  # of a command that nobody disturbs; longer is a hang
_LOOK_S = 0.005
Setting = Callable[[], None]  # what a child does before its command


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None  # None if a signal ended it
    signal: int | None
    output: str
    said: str  # on standard error
    seconds: float
    hung: bool = False

    @property
    def tracebacks(self) -> int:
        return int("Traceback (most recent call last)" in self.output + self.said)

    @property
    def is_a_sentence(self) -> bool:
        """Whether bad news came as promised: one line from midstride, and exit code 2."""
        lines = [line for line in self.said.splitlines() if line.strip()]
        return self.code == 2 and len(lines) == 1 and lines[0].startswith("midstride: ")

    @property
    def words(self) -> str:
        """What it last said, for people."""
        return (self.said or self.output)[-1500:]


def prepare(cache: Path) -> None:
    """Import what commands need, and keep what they compile in a folder."""
    import jax

    import midstride

    for module in pkgutil.walk_packages(midstride.__path__, "midstride."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    import_module("matplotlib.backends.backend_agg")
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def run(
    command: Sequence[str],
    log: Path,
    first: Setting = lambda: None,
    kill_after_s: float | None = None,
    send: Sequence[tuple[Path, int]] = (),
) -> Ended:
    """Run a midstride command in a fork, in a folder of its own beside `log`.

    kill_after_s: when to kill it, with all of its processes
    send: signals, each when a file exists
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with warnings.catch_warnings():  # JAX warns of any fork; it has started nothing here
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
        pid = os.fork()
    if pid == 0:
        _be(command, log, first)
    waiting, hung, status = list(send), False, 0
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            break
        elapsed = time.monotonic() - started
        if waiting and waiting[0][0].exists():
            os.kill(pid, waiting.pop(0)[1])
        if kill_after_s is not None and elapsed >= kill_after_s:
            os.kill(pid, signal.SIGKILL)
        if elapsed > LIMIT_S:
            hung = True
            os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)
    _await_group(pid)
    by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    output, said = (
        path.read_text(errors="replace") if path.exists() else "" for path in (log, _errors(log))
    )
    return Ended(code, by_signal, output, said, time.monotonic() - started, hung)


def _errors(log: Path) -> Path:
    return log.with_name(f"{log.name}-errors")


def _be(command: Sequence[str], log: Path, first: Setting) -> None:
    """What a child does; it does not return."""
    code = 1
    try:
        os.setsid()
        for stream, path in ((1, log), (2, _errors(log))):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        first()
        from midstride.cli import main

        main(command)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _await_group(leader: int) -> None:
    """Wait until no process is left of a command: those of workers end by themselves."""
    end = time.monotonic() + 30
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < end:
            os.killpg(leader, 0)
            time.sleep(_LOOK_S)
        os.killpg(leader, signal.SIGKILL)


def here(jobs: Sequence[object], workers: int | None = None) -> Iterator[object]:
    """An engine that does jobs in this process, one after another."""
    from midstride.scale.jobs import Event, do, reason

    for i, job in enumerate(jobs):
        yield Event(i, "started")
        try:
            result = do(job)  # type: ignore[arg-type]
        except Exception as error:
            yield Event(i, "error", reason(error))
        else:
            yield Event(i, "result", result)


def sweep_here() -> None:
    """Sweeps of this process train in it: all of their writes are here."""
    from midstride.scale import engines

    vars(engines)["run_jobs"] = here


def fork_workers() -> None:
    """Workers of this process are forks of it, and need not import anything."""
    forked = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: forked  # type: ignore[assignment]
