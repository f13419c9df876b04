"""Mutated files, fed to the real loaders: each is read, or refused by one sentence, and no more.

    python -c "from attacks.mutations import run; print(run(10_000, seed=0, seconds=60))"

A file is mutated in its bytes (flipped bits, cuts, insertions) or in its structure (values, names
and types of JSON, TOML, CSV and tensors, checksums made right again). An audit hook sees modules
imported, programs started and files written, whatever the loader says.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from attacks.mutants import CANARY, SECRET, mutant
from attacks.specimens import Specimen, specimens

OUTCOMES = ("equal", "different", "refused", "traceback", "hang", "code", "outside", "leak")
BAD = OUTCOMES[3:]
_PATIENCE_S = 20.0  # for one file, also on a machine that is busy
_LAST_S = 900.0  # then the process ends with a traceback: something does not even take a signal
_LONGEST = 2000  # letters of a sentence


class Hang(BaseException):
    """A loader has not ended."""


def run(
    count: int, seed: int = 0, seconds: float = 60.0, keep: Path | None = None
) -> dict[str, dict[str, int]]:
    """Feed at most so many mutated files, for at most so long; what came of them, by loader.

    keep: a folder for mutated files that did harm, each with what happened
    """
    known, rng, until = _known(), np.random.default_rng(seed), time.monotonic() + seconds
    found = {one.name: Counter(dict.fromkeys(OUTCOMES, 0)) for one in known}
    expected = {}
    for one in known:
        one.put(one.content)
        expected[one.name] = _print_of(one.load(one.folder))
    with _bait(), _alarm(), _watched(known[0].folder.parent):
        for number in range(count):
            if time.monotonic() > until:
                break
            if number % 500 == 0:
                faulthandler.dump_traceback_later(_LAST_S, exit=True)
            one = known[int(rng.integers(len(known)))]
            content, is_sealed = mutant(one, rng)
            outcome, said = feed(one, content, is_sealed, expected[one.name])
            found[one.name][outcome] += 1
            if outcome in BAD and keep is not None:
                _keep(keep, one, content, f"{number} {outcome}: {said}")
    faulthandler.cancel_dump_traceback_later()
    return {name: dict(counts) for name, counts in found.items()}


def bad(found: dict[str, dict[str, int]]) -> int:
    """How many did harm."""
    return sum(counts[name] for counts in found.values() for name in BAD)


def feed(one: Specimen, content: bytes, is_sealed: bool, expected: bytes) -> tuple[str, str]:
    """Put a mutated file in its place and load it; what came of it."""
    one.put(content, is_sealed)
    _seen.clear()
    _armed.set()
    said = ""
    try:
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
        found = one.load(one.folder)
        outcome = "equal" if _print_of(found) == expected else "different"
    except Hang:
        outcome = "hang"
    except ValueError as error:
        said = str(error)
        is_sentence = said and "\n" not in said and len(said) <= _LONGEST
        outcome = "refused" if is_sentence else "traceback"
        outcome = "leak" if SECRET in said else outcome
    except Exception as error:
        outcome, said = "traceback", f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _armed.clear()
    if _seen:
        return _seen[0]
    return outcome, said


@cache
def _known() -> list[Specimen]:
    """Specimens of this process, made once, in memory where that can be."""
    memory = Path("/dev/shm")
    where = tempfile.mkdtemp(
        prefix="midstride-specimens-", dir=memory if os.access(memory, os.W_OK) else None
    )
    atexit.register(shutil.rmtree, where, ignore_errors=True)
    return specimens(Path(where))


def _print_of(value: Any) -> bytes:
    """Equal values have equal prints."""
    return pickle.dumps(value)


def _keep(folder: Path, one: Specimen, content: bytes, said: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.txt")))
    (folder / f"{number}.bin").write_bytes(content)
    (folder / f"{number}.txt").write_text(f"{one.name}: {said}\n")


# --- Watching ------------------------------------------------------------------------------------

_armed = threading.Event()
_seen: list[tuple[str, str]] = []
_home: list[str] = []
_RUNS = {
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "pickle.find_class",
}
_WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod"}


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _armed.is_set():
        return
    if event == "exec" and CANARY in arguments[0].co_filename:
        _seen.append(("code", f"ran {arguments[0].co_filename}"))
    elif event in _RUNS:
        _seen.append(("code", event))
    elif event in _WRITES or (event == "open" and _for_writing(arguments)):
        if isinstance(arguments[0], int):  # a file that is open already
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not path.startswith(_home[0]):
            _seen.append(("outside", f"{event} {path}"))


def _for_writing(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str) and set(mode) & set("wax+"):
        return True
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


@cache
def _install() -> None:
    sys.addaudithook(_hook)  # which stays for the life of the process: armed while a file is loaded


@contextmanager
def _watched(home: Path) -> Iterator[None]:
    _home[:] = [os.path.realpath(home)]
    _install()
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # Python's own files
    try:
        yield
    finally:
        sys.dont_write_bytecode = kept


@contextmanager
def _bait() -> Iterator[None]:
    """A module that a file could name, where Python would find it; it is not imported by us."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{CANARY}.py").write_text("")
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            sys.modules.pop(CANARY, None)


@contextmanager
def _alarm() -> Iterator[None]:
    """An exception when the timer ends that is set for each file."""

    def stop(number: int, frame: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
