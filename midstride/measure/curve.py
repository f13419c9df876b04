"""What a policy gets over a grid of latencies, always from the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from midstride.latency import Fixed, LatencyModel
from midstride.measure.play import Place
from midstride.measure.statistics import interval
from midstride.timing import Timing

OnEpisode = Callable[[int], None]  # told how many episodes were played


@dataclass(frozen=True)
class Returns:
    """What a policy gets, episode by episode."""

    each: tuple[float, ...]
    latency: LatencyModel | None = None  # at which

    @property
    def mean(self) -> float:
        return float(np.mean(self.each))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean."""
        return interval(self.each)

    @property
    def latency_s(self) -> float:
        """The longest that occurs."""
        return 0.0 if self.latency is None else float(max(self.latency.values_s))

    def summary(self) -> dict[str, Any]:
        """As a file can hold it."""
        return {"mean": self.mean, "interval": list(self.interval), "returns": list(self.each)}


def curve(
    policy: Any,
    place: Place,
    latencies_s: Sequence[float],
    seeds: Sequence[int],
    on_episode: OnEpisode = lambda played: None,
) -> tuple[Returns, ...]:
    """Returns at each of the latencies."""
    found, played = [], 0
    for latency_s in latencies_s:
        each: list[float] = []
        for seed in seeds:
            each += [one.total for one in place.play(policy, Fixed(latency_s), [seed])]
            played += 1
            on_episode(played)
        found.append(Returns(tuple(each), Fixed(latency_s)))
    return tuple(found)


def grid(timing: Timing, longest_s: float, most: int = 11) -> tuple[float, ...]:
    """Latencies from 0 to about `longest_s`, whole ticks, evenly."""
    ticks = max(1, round(longest_s / timing.tick_s))
    chosen = np.unique(np.rint(np.linspace(0, ticks, min(most, ticks + 1))).astype(int))
    return tuple(float(tick * timing.tick_s) for tick in chosen)


def kept_around(
    points: Sequence[Returns], bar: float, latency_s: float
) -> tuple[float, float] | None:
    """The shortest and the longest latency of those that reach `bar`, without a gap, around one."""
    at = [point.latency_s for point in points]
    middle = int(np.argmin(np.abs(np.array(at) - latency_s)))
    reaches = [point.mean >= bar for point in points]
    if not reaches[middle]:
        return None
    first = last = middle
    while first > 0 and reaches[first - 1]:
        first -= 1
    while last + 1 < len(at) and reaches[last + 1]:
        last += 1
    return at[first], at[last]
