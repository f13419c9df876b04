"""One monotonic clock, handed to whatever reads time or waits: the wall's, or one tests drive."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

_SWITCH_S = 2e-4  # how long a thinking thread may keep the interpreter from one that is due


class Clock(Protocol):
    """Seconds that never go backwards, the same for all processes of a machine."""

    def now_s(self) -> float: ...

    def sleep_until(self, instant_s: float, wake: threading.Event | None = None) -> None:
        """Return at `instant_s`, or once `wake` is set, whichever comes first."""
        ...


class WallClock:
    """The machine's monotonic clock.

    spin_s: the last part of a wait, in which it looks again and again: an operating system wakes
        whoever sleeps a tenth of a millisecond late, or more
    """

    def __init__(self, spin_s: float = 5e-4) -> None:
        self._spin_s = spin_s

    def now_s(self) -> float:
        return time.monotonic()

    def sleep_until(self, instant_s: float, wake: threading.Event | None = None) -> None:
        left_s = instant_s - time.monotonic() - self._spin_s
        if left_s > 0:
            if wake is None:
                time.sleep(left_s)
            elif wake.wait(left_s):
                return
        while time.monotonic() < instant_s and not (wake is not None and wake.is_set()):
            time.sleep(0)  # other threads may go on meanwhile


class VirtualClock:
    """Time that passes only where somebody sleeps: a test is deterministic, and waits for nothing.

    overshoot_s: how much too late a sleeper wakes; called at every sleep
    """

    def __init__(
        self, start_s: float = 0.0, overshoot_s: Callable[[], float] | None = None
    ) -> None:
        self._now_s = start_s
        self._overshoot_s = overshoot_s

    def now_s(self) -> float:
        return self._now_s

    def sleep_until(self, instant_s: float, wake: threading.Event | None = None) -> None:
        """Nobody else is awake to set `wake` meanwhile; if it is set already, no time passes."""
        if wake is not None and wake.is_set():
            return
        late_s = 0.0 if self._overshoot_s is None else self._overshoot_s()
        self._now_s = max(self._now_s, instant_s + late_s)


@contextmanager
def steady() -> Iterator[None]:
    """While a robot runs: threads take turns quickly, and to collect garbage takes little time.

    What is there already is left alone; what comes is collected, or a day's run would fill memory.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        gc.unfreeze()
