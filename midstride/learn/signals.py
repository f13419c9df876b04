"""Interrupts that wait until there is something to save."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A training was interrupted, and says what it saved."""

    def __init__(self, folder: Path, steps: int) -> None:
        super().__init__(f"interrupted: saved {folder} after {steps:,} steps")
        self.folder, self.steps = folder, steps


@contextmanager
def held_interrupts() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back; yields a function that tells whether there was one.

    An interrupt raised wherever it falls, inside an update say, would leave nothing to save. A
    second one is not held.
    """
    came: list[int] = []
    held = {}

    def hold(number: int, frame: Any) -> None:
        came.append(number)
        signal.signal(number, signal.default_int_handler)

    if threading.current_thread() is threading.main_thread():  # no other gets signals
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.default_int_handler:
                held[number] = signal.signal(number, hold)
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
