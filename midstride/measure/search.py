"""Where along an axis a policy stops keeping what it has: a search that spends episodes there.

Levels 0, 1, 2, ... are what is made worse step by step: ticks of latency, of jitter, a share of
lost decisions. At each, episode k starts from the same seed (paired). An episode's *gain* is what
it has above the bar that is set for it; a level *keeps* if the mean gain is not negative. The
margin is the highest level before the first that does not keep, however things go on after it.

The search tries levels at doubling distances with few episodes each, halves the gap in which the
sign of the mean gain changes first, and then spends episodes at the levels that the two ends of the
interval depend on. The interval takes it that levels between two that were tried are not worse
than both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from midstride.measure.statistics import is_positive

Array = NDArray[np.float64]
# (level, episodes) -> the gain of each: episode numbers count from 0 and name their seeds.
Gains = Callable[[int, range], Array]

ALPHA = 0.025  # that a look at a level is wrong, at each end of the interval
LOOKS = 4  # how often a level is judged at most; its episodes double from one to the next
TOLERANCE = 0.05  # of the margin: an end of the interval this near to it is near enough


@dataclass(frozen=True)
class Found:
    """A margin, in levels."""

    margin: int
    low: int  # the 95 % interval: both ends are in it
    high: int | None  # None: beyond the highest level
    beyond: bool  # no level that was tried fails: the margin is at least the highest
    recovers: tuple[int, ...]  # levels above the margin that keep again
    gains: dict[int, Array]  # of every level that was tried

    @property
    def episodes(self) -> int:
        """That were spent, those of level 0 left out."""
        return sum(len(of_level) for level, of_level in self.gains.items() if level > 0)


@dataclass
class _Search:
    measure: Gains
    levels: int  # the highest
    schedule: tuple[int, ...]  # episodes of a level at each look
    worst: float  # the least that an episode gains, as far as is known before
    gains: dict[int, Array] = field(default_factory=dict)
    means: dict[int, float] = field(default_factory=dict)
    keeps: set[int] = field(default_factory=set)  # beyond doubt
    fails: set[int] = field(default_factory=set)
    new: set[int] = field(default_factory=set)  # levels with episodes that were not judged yet

    def look(self, level: int) -> bool:
        """More episodes of a level, up to the next look; False if it has had all of them."""
        had = len(self.gains.get(level, ()))
        following = [n for n in self.schedule if n > had]
        if not following:
            return False
        found = np.asarray(self.measure(level, range(had, following[0])), float)
        self.gains[level] = np.concatenate([self.gains.get(level, np.zeros(0)), found])
        self.means[level] = float(self.gains[level].mean())
        self.new.add(level)
        return True

    def judge(self) -> None:
        """Say of every level with new episodes whether it keeps or fails beyond doubt.

        What was said at an earlier look stays said.
        """
        least, most = self.bounds()
        for level in self.new - {0} - self.keeps - self.fails:
            if is_positive(self.gains[level], least, ALPHA):
                self.keeps.add(level)
            elif is_positive(-self.gains[level], -most, ALPHA):
                self.fails.add(level)
        self.new.clear()

    def bounds(self) -> tuple[float, float]:
        """The least and the most that an episode gains, at levels up to the first that fails."""
        top = self.first_failing()
        every = np.concatenate([g for k, g in self.gains.items() if top is None or k <= top])
        low = float(every.min())
        return (min(low, self.worst) if top is None or low >= 0 else low), float(every.max())

    def first_failing(self) -> int | None:
        """The lowest level that was tried and does not keep, by its mean."""
        return min((k for k, mean in self.means.items() if k > 0 and mean < 0), default=None)

    def bracket(self) -> tuple[int, int | None]:
        """The margin as it is seen now, and the first level that does not keep; neighbours."""
        while True:
            top = self.first_failing()
            below = max(k for k in self.gains if top is None or k < top)
            if top is None or top == below + 1:
                return below, top
            self.look((below + top) // 2)

    def interval(self, margin: int) -> tuple[int, int | None]:
        """Below: the highest level that surely keeps; above: the lowest that surely fails."""
        low = max((k for k in self.keeps if k <= margin), default=0)
        high = min((k - 1 for k in self.fails if k > margin), default=None)
        return low, high


def search(
    measure: Gains,
    levels: int,
    episodes: int,
    worst: float,
    on_progress: Callable[[dict[int, Array]], None] = lambda gains: None,
) -> Found:
    """The margin on levels 0 to `levels`, and its 95 % interval.

    episodes: of one level at most
    worst: the least that an episode gains (a negative number): that of a policy that loses all
    """
    if levels < 1:
        raise ValueError(f"there must be a level to try, got {levels}")
    steps = [-(-episodes // 2**k) for k in range(LOOKS)]
    schedule = tuple(sorted(n for n in set(steps) if n > 1))
    if not schedule:
        raise ValueError(f"a margin needs at least 2 episodes at a level, got {episodes}")
    state = _Search(measure, levels, schedule, worst)
    for level in _doubling(levels):
        state.look(level)
        on_progress(state.gains)
    while True:
        margin, top = state.bracket()
        state.judge()
        on_progress(state.gains)
        wanted = _next_level(state, margin, top)
        if wanted is None:
            break
        state.look(wanted)
    low, high = state.interval(margin)
    recovers = sorted(k for k, mean in state.means.items() if k > margin and mean >= 0)
    return Found(margin, low, high, top is None, tuple(recovers), dict(sorted(state.gains.items())))


def _doubling(levels: int) -> list[int]:
    """0, 1, 2, 4, 8, ... and the highest level."""
    return sorted({0, levels, *(2**k for k in range(levels.bit_length()) if 2**k < levels)})


def _next_level(state: _Search, margin: int, top: int | None) -> int | None:
    """The level at which more episodes would narrow the interval most, if any."""
    near = int(TOLERANCE * margin)
    low, high = state.interval(margin)
    candidates = []
    if margin - low > near:
        candidates.append(_between(state, low, margin))
    if top is not None:
        highest = state.levels + 1 if high is None else high + 1
        if highest - top > near:
            candidates.append(_between(state, highest, top))
    wanted = [level for level in candidates if level is not None]
    # The end with fewer episodes first: both grow alike.
    return min(wanted, key=lambda k: (len(state.gains.get(k, ())), k), default=None)


def _between(state: _Search, decided: int, doubtful: int) -> int | None:
    """Of the levels from one that is decided to one that is not, where to look next.

    The doubtful end first; when it has had all its episodes, the middle of what is left.
    """
    full = state.schedule[-1]
    while True:
        if not 0 <= doubtful <= state.levels:
            return None
        if len(state.gains.get(doubtful, ())) < full:
            return doubtful
        if abs(doubtful - decided) <= 1:
            return None
        step = 1 if decided > doubtful else -1
        doubtful += step * max(1, abs(decided - doubtful) // 2)
        if doubtful == decided:
            return None
