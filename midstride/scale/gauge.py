"""Rates of what is counted, over the last half minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

_WINDOW_S = 30.0


class Gauge:
    """Counts as they were, to tell how fast they grow."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._marks: deque[tuple[float, dict[str, float]]] = deque()

    def rates(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Each count per second, since half a minute ago or the first time that was asked."""
        now = self._clock()
        self._marks.append((now, dict(counts)))
        while len(self._marks) > 2 and self._marks[1][0] <= now - _WINDOW_S:
            self._marks.popleft()
        then, before = self._marks[0]
        passed = now - then
        return {
            name: (n - before[name]) / passed if passed > 0 else 0.0 for name, n in counts.items()
        }
