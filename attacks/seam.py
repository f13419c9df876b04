"""Faults in the one place where midstride writes files: the system's calls of `disk/files.py`.

Every call that changes something on the disk is counted. At a chosen one the process is killed, or
the call fails as on a full or broken disk; a write has done half of its work by then.
"""

from __future__ import annotations

import errno
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from midstride.disk import files

ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
_CALLS = ("mkdir", "write", "fsync", "chmod", "replace")  # of os
Fault = Callable[[str], None]  # told the name of the call that it happens in


@dataclass
class Counted:
    """Calls so far, and what happens at which."""

    fault: Fault
    at: int = -1  # the call that it happens in, counted from 1; -1: never
    lasting: bool = False  # in all later ones too: a disk that is full stays full
    calls: list[str] = field(default_factory=list)
    told: Path | None = None  # where the calls are noted, by name, for another process

    def is_due(self, name: str) -> bool:
        self.calls.append(name)
        if self.told is not None:
            self.told.write_text("\n".join(self.calls))
        return 0 < self.at <= len(self.calls) if self.lasting else len(self.calls) == self.at


class _Through:
    """A module, with some of its functions taken by others."""

    def __init__(self, module: Any, others: dict[str, Any]) -> None:
        self._module, self._others = module, others

    def __getattr__(self, name: str) -> Any:
        return self._others[name] if name in self._others else getattr(self._module, name)


@contextmanager
def faulty(counted: Counted) -> Iterator[Counted]:
    """Count the calls, and have the fault happen, in this process."""
    held = {name: vars(files)[name] for name in ("os", "tempfile")}
    install(counted)
    try:
        yield counted
    finally:
        vars(files).update(held)


def install(counted: Counted) -> None:
    """As `faulty`, for as long as this process lives."""
    others = {name: _faulty_call(counted, name, getattr(os, name)) for name in _CALLS}
    making = {"mkstemp": _faulty_call(counted, "mkstemp", tempfile.mkstemp)}
    vars(files).update(os=_Through(os, others), tempfile=_Through(tempfile, making))
    files._sweep.cache_clear()  # as in a new process


def _faulty_call(counted: Counted, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        if counted.is_due(name):
            if name == "write":
                descriptor, data = args
                os.write(descriptor, data[: len(data) // 2])
            counted.fault(name)
        return call(*args, **options)

    return called


def failing(number: int) -> Fault:
    """The call fails with this error of the system."""

    def fail(name: str) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def killed(name: str) -> None:
    """The process ends in the call."""
    os.kill(os.getpid(), signal.SIGKILL)
