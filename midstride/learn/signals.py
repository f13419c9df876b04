"""Signals that ask a program to end: they wait until what is under way is saved.

Ctrl-C (SIGINT), SIGTERM (what Slurm, Docker and Kubernetes send some seconds before they kill) and
SIGHUP (the terminal is gone) mean the same here. The exit code says which it was: 128 and its
number, as of any program.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

_ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # there is no SIGHUP on Windows


class Interrupted(KeyboardInterrupt):
    """A signal asked to end; says what was saved, if anything was."""

    def __init__(self, said: str = "", number: int = signal.SIGINT) -> None:
        super().__init__(said)
        self.number = number

    @classmethod
    def after(cls, folder: Path, steps: int, number: int) -> Interrupted:
        """Of a training that was saved."""
        return cls(f"{word(number)}: saved {folder} after {steps:,} steps", number)


def number_of(stop: KeyboardInterrupt) -> int:
    """Of the signal that an interrupt came from."""
    return stop.number if isinstance(stop, Interrupted) else signal.SIGINT


def word(number: int) -> str:
    """What a signal did, for sentences."""
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


def interrupt(number: int, frame: Any = None) -> NoReturn:
    """A handler: the signal is raised where it falls, as Ctrl-C is."""
    raise Interrupted(number=number)


@contextmanager
def raised_signals() -> Iterator[None]:
    """Raise `Interrupted` at a signal that would end the process at once, and unwind from there.

    Signals that are ignored (nohup ignores SIGHUP) or that somebody else handles are let be.
    """
    with _handled(interrupt, (signal.SIG_DFL, signal.default_int_handler)):
        yield


@contextmanager
def held_interrupts() -> Iterator[Callable[[], int | None]]:
    """Hold ending signals back; yields a function that tells which came first, or None.

    A signal raised wherever it falls, inside an update say, would leave nothing to save. A second
    Ctrl-C is not held: who presses it twice means now. Other signals may be sent several times
    (to a group of processes, and by the parent among them): they stay held.
    """
    came: list[int] = []

    def hold(number: int, frame: Any) -> None:
        if number == signal.SIGINT and number in came:
            interrupt(number)
        came.append(number)

    with _handled(hold, (signal.SIG_DFL, signal.default_int_handler, interrupt)):
        yield lambda: came[0] if came else None


@contextmanager
def _handled(handler: Callable[[int, Any], Any], instead_of: tuple[Any, ...]) -> Iterator[None]:
    """Handle ending signals, where one of these handlers would."""
    before = {}
    if threading.current_thread() is threading.main_thread():  # no other gets signals
        for number in _ENDING:
            if signal.getsignal(number) in instead_of:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
