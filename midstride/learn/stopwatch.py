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
        self._aside = 0.0  # another clock's reading when the lap began

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

    def start(self, aside: float = 0.0) -> None:
        """From now on a lap is counted; aside: the reading of a clock that runs inside of it."""
        self._since, self._aside = time.perf_counter(), aside

    def lap(self, piece: str, aside: tuple[str, float] | None = None) -> None:
        """A piece has ended; the next begins.

        aside: another piece that was inside of it, and what its own clock reads now
        """
        if self.measures:
            now = time.perf_counter()
            spent = now - self._since
            if aside is not None:
                other, reading = aside
                self.rounds[other] += reading - self._aside
                spent -= reading - self._aside
            self.rounds[piece] += spent
            self._since = now

    def add(self, seconds: dict[str, float], rounds: dict[str, float]) -> None:
        """What was counted before, in a training that is gone on with."""
        for now, before in ((self.seconds, seconds), (self.rounds, rounds)):
            for piece, spent in before.items():
                now[piece] += spent

    def split(self, rounds_s: float) -> dict[str, float]:
        """Seconds of every piece, when all rounds together took `rounds_s`."""
        total = sum(self.rounds.values())
        scale = rounds_s / total if total else 0.0
        found = {**self.seconds, **{name: s * scale for name, s in self.rounds.items()}}
        return {name: round(seconds, 1) for name, seconds in found.items()}
