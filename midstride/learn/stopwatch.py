"""Where the time of a training goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

_EVERY = 64  # rounds


class Stopwatch:
    """Seconds by piece of work.

    Physics and updates overlap, so their times cannot be told apart while they run. One round in
    many is measured: there each piece is waited for, and its share stands for the rounds between.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)  # of pieces that nothing overlaps
        self.rounds: dict[str, float] = defaultdict(float)  # of rounds that were measured
        self.measures = False  # whether the round under way is
        self._count = 0
        self._since = time.perf_counter()

    @contextmanager
    def of(self, piece: str) -> Iterator[None]:
        """The time of a piece that nothing overlaps."""
        started = time.perf_counter()
        yield
        self.seconds[piece] += time.perf_counter() - started

    def next_round(self) -> bool:
        """Whether the round that begins is to be measured: not the first, where code compiles."""
        self._count += 1
        self.measures = self._count % _EVERY == _EVERY // 2
        return self.measures

    def start(self) -> None:
        """From now on a lap is counted."""
        self._since = time.perf_counter()

    def lap(self, piece: str) -> None:
        """A piece has ended; the next begins."""
        if self.measures:
            now = time.perf_counter()
            self.rounds[piece] += now - self._since
            self._since = now

    def move(self, piece: str, to: str, seconds: float) -> None:
        """Of the lap that has just ended, this much was of another piece."""
        if self.measures:
            self.rounds[piece] -= seconds
            self.rounds[to] += seconds

    def split(self, rounds_s: float) -> dict[str, float]:
        """Seconds of every piece, when all rounds together took `rounds_s`."""
        total = sum(self.rounds.values())
        scale = rounds_s / total if total else 0.0
        found = {**self.seconds, **{name: s * scale for name, s in self.rounds.items()}}
        return {name: round(seconds, 1) for name, seconds in found.items()}
