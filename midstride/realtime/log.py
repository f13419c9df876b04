"""What a robot's server says of itself, for people."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from midstride.realtime.clock import Clock

_LINES_PER_S = 20  # what is more is counted
_KEPT = 1000  # lines that wait to be written
_END_S = 2.0  # that the last lines may take


class Log:
    """Lines with the time, and not more than a person could read.

    The time is that of the robot's clock, as in its record of ticks and in a run's decisions. A
    thread of its own writes: a terminal or a pipe that takes no more must not stop a robot.
    """

    def __init__(self, write: Callable[[str], None], clock: Clock) -> None:
        self._write, self._clock = write, clock
        self._second, self._lines, self._unsaid = 0.0, 0, 0
        self._lock = threading.Lock()
        self._waiting: queue.Queue[str | None] = queue.Queue(_KEPT)
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def __call__(self, line: str, matters: bool = False) -> None:
        """matters: it is written however many lines there are."""
        with self._lock:
            now_s = self._clock.now_s()
            if now_s // 1 != self._second:
                if self._unsaid:
                    self._put(f"{now_s:.3f} s: and {self._unsaid} lines more")
                self._second, self._lines, self._unsaid = now_s // 1, 0, 0
            self._lines += 1
            if matters or self._lines <= _LINES_PER_S:
                self._put(f"{now_s:.3f} s: {line}")
            else:
                self._unsaid += 1

    def close(self) -> None:
        """Write what waits."""
        self._put(None)
        self._thread.join(_END_S)

    def _put(self, line: str | None) -> None:
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._unsaid += 1

    def _work(self) -> None:
        while (line := self._waiting.get()) is not None:
            self._write(line)
