"""Latency models: which latencies may occur, and in which order.

Nothing else in midstride samples a latency. A model is frozen and holds no random state; `Timing`
checks that its latencies fit the tick and the period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from midstride.seconds import check_time_s, format_s
from midstride.traces import read_trace

Rounding = Literal["exact", "up", "nearest"]
NextLatencies = Callable[[int], NDArray[np.float64]]


def _check_rounding(rounding: str) -> None:
    if rounding not in get_args(Rounding):
        raise ValueError(
            f"rounding must be one of {', '.join(map(repr, get_args(Rounding)))}, got {rounding!r}"
        )


def _as_times(times_s: Iterable[float]) -> tuple[float, ...]:
    if not isinstance(times_s, Iterable):
        raise ValueError(f"latencies must be a sequence of seconds, got {times_s!r}")
    return tuple(check_time_s(time_s, "latency") for time_s in times_s)


@runtime_checkable
class LatencyModel(Protocol):
    """Which latencies occur, and in which order. All are frozen and hold no random state."""

    @property
    def values_s(self) -> NDArray[np.float64]:
        """Every latency that may occur; for a continuous model its two bounds."""
        ...

    @property
    def rounding(self) -> Rounding:
        """How a latency becomes whole ticks; 'exact' rejects one that does not fit."""
        ...

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        """Start an episode: a function that gives its next n latencies in seconds."""
        ...


@dataclass(frozen=True)
class Fixed:
    """The same latency at every step."""

    latency_s: float
    rounding: Rounding = "exact"

    def __post_init__(self) -> None:
        check_time_s(self.latency_s, "latency")
        _check_rounding(self.rounding)

    @property
    def values_s(self) -> NDArray[np.float64]:
        return np.array([self.latency_s])

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        return lambda n: np.full(n, float(self.latency_s))


@dataclass(frozen=True)
class _Choice:
    """A set of latencies with probabilities (equal ones unless given)."""

    choices_s: tuple[float, ...]
    probabilities: tuple[float, ...] | None = None
    rounding: Rounding = "exact"

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices_s", _as_times(self.choices_s))
        _check_rounding(self.rounding)
        if not self.choices_s:
            raise ValueError("a set of latencies needs at least one latency, got none")
        if self.probabilities is not None:
            object.__setattr__(self, "probabilities", tuple(self.probabilities))
            p = np.asarray(self.probabilities, float)
            if p.shape != (len(self.choices_s),) or not (p >= 0).all() or abs(p.sum() - 1) > 1e-9:
                raise ValueError(
                    f"probabilities must be {len(self.choices_s)} numbers of at least 0 that sum "
                    f"to 1, one per latency, got {self.probabilities}"
                )

    @property
    def values_s(self) -> NDArray[np.float64]:
        return np.asarray(self.choices_s, float)


@dataclass(frozen=True)
class PerEpisode(_Choice):
    """One latency drawn from a set at each reset and kept for the episode (as in the paper)."""

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        drawn_s = rng.choice(self.values_s, p=self.probabilities)
        return lambda n: np.full(n, drawn_s)


@dataclass(frozen=True)
class PerStep(_Choice):
    """A latency drawn from a set at each step, independently."""

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        return lambda n: rng.choice(self.values_s, size=n, p=self.probabilities)


@dataclass(frozen=True)
class Sampled:
    """A latency drawn at each step from any continuous distribution, within bounds.

    `draw(rng, n)` returns n latencies in seconds, for example
    `lambda rng, n: rng.lognormal(math.log(0.02), 0.3, n)`; draws outside [low_s, high_s] are
    moved to the nearer bound. A continuous time never fits the tick, so it is rounded: 'up' (a
    command takes effect at the first tick after it is ready) or 'nearest'.
    """

    draw: Callable[[np.random.Generator, int], NDArray[np.float64]]
    low_s: float
    high_s: float
    rounding: Rounding = "up"

    def __post_init__(self) -> None:
        check_time_s(self.low_s, "lowest latency")
        check_time_s(self.high_s, "highest latency")
        if self.low_s > self.high_s:
            raise ValueError(
                f"the lowest latency ({format_s(self.low_s)}) must not exceed the highest "
                f"({format_s(self.high_s)})"
            )
        if not callable(self.draw):
            raise ValueError("draw must be a function (rng, n) -> n latencies in seconds")
        _check_rounding(self.rounding)
        if self.rounding == "exact":
            raise ValueError("a continuous latency needs rounding='up' or rounding='nearest'")

    @property
    def values_s(self) -> NDArray[np.float64]:
        return np.array([self.low_s, self.high_s], float)

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        def following(n: int) -> NDArray[np.float64]:
            drawn_s = np.asarray(self.draw(rng, n), float)
            if drawn_s.shape != (n,) or not np.isfinite(drawn_s).all():
                raise ValueError(f"draw(rng, {n}) must return {n} finite latencies in seconds")
            return np.clip(drawn_s, self.low_s, self.high_s)

        return following


@dataclass(frozen=True)
class Trace:
    """Measured latencies, replayed in order and over again.

    Each episode starts at a random place of the trace (`start='random'`) or at its first line
    (`start='first'`). Measured times rarely fit the tick, and are refused unless it is said how
    they are rounded: rounding='up' or rounding='nearest'.
    """

    latencies_s: tuple[float, ...]
    rounding: Rounding = "exact"
    start: Literal["random", "first"] = "random"

    def __post_init__(self) -> None:
        object.__setattr__(self, "latencies_s", _as_times(self.latencies_s))
        _check_rounding(self.rounding)
        if self.start not in ("random", "first"):
            raise ValueError(f"start must be 'random' or 'first', got {self.start!r}")
        if not self.latencies_s:
            raise ValueError("a latency trace needs at least one latency, got none")

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        rounding: Rounding = "exact",
        start: Literal["random", "first"] = "random",
    ) -> Trace:
        """Read a trace: a column `latency_s` or `latency_ms`, or one bare column of seconds."""
        return cls(tuple(read_trace(Path(path))), rounding, start)

    @property
    def values_s(self) -> NDArray[np.float64]:
        return np.unique(self.latencies_s)

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        trace_s = np.asarray(self.latencies_s)
        position = int(rng.integers(len(trace_s))) if self.start == "random" else 0

        def following(n: int) -> NDArray[np.float64]:
            nonlocal position
            indices = (position + np.arange(n)) % len(trace_s)
            position = (position + n) % len(trace_s)
            return trace_s[indices]

        return following


@dataclass(frozen=True)
class Jittered:
    """A latency drawn at each step, evenly from `mean_s - spread_s` to `mean_s + spread_s`.

    The same generator gives the same draws, scaled, whatever the spread.
    """

    mean_s: float
    spread_s: float
    rounding: Rounding = "nearest"

    def __post_init__(self) -> None:
        check_time_s(self.mean_s, "mean latency")
        check_time_s(self.spread_s, "spread of the latency")
        if self.spread_s > self.mean_s:
            raise ValueError(
                f"the spread of a latency ({format_s(self.spread_s)}) must not exceed its mean "
                f"({format_s(self.mean_s)}): no latency is below 0 s"
            )
        _check_rounding(self.rounding)
        if self.rounding == "exact":
            raise ValueError("a continuous latency needs rounding='up' or rounding='nearest'")

    @property
    def values_s(self) -> NDArray[np.float64]:
        return np.array([self.mean_s - self.spread_s, self.mean_s + self.spread_s], float)

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        return lambda n: self.mean_s + self.spread_s * rng.uniform(-1, 1, n)


@dataclass(frozen=True)
class Lossy:
    """Any latency, with a share of the decisions lost: the thought takes its time, and nothing
    comes of it. Each is lost or not independently of the others.
    """

    latency: LatencyModel | float
    share: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", as_latency(self.latency))
        if isinstance(self.latency, Lossy):
            raise ValueError("this latency loses decisions already: give one share of lost ones")
        number = isinstance(self.share, (int, float, np.number)) and self.share is not True
        if not number or not 0 <= self.share <= 1:
            raise ValueError(
                f"the share of lost decisions must be a number from 0 to 1, got {self.share!r}"
            )

    @property
    def _model(self) -> LatencyModel:
        return as_latency(self.latency)

    @property
    def values_s(self) -> NDArray[np.float64]:
        return self._model.values_s

    @property
    def rounding(self) -> Rounding:
        return self._model.rounding

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        return self._model.episode(rng)


@dataclass(frozen=True)
class OnScaleOf:
    """A latency, measured on the scale of another: that which a policy was trained with.

    Selection time is scaled by the longest latency that can occur. A policy that was trained with
    up to 50 ms would take a fixed 10 ms for 50 ms, if 10 ms were all that can occur. What is longer
    than in training reads as the longest of then.
    """

    trained: LatencyModel
    latency: LatencyModel

    @property
    def values_s(self) -> NDArray[np.float64]:
        return self.latency.values_s

    @property
    def rounding(self) -> Rounding:
        return self.latency.rounding

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        return self.latency.episode(rng)


NextLost = Callable[[int], NDArray[np.bool_]]


def losses(latency: LatencyModel, rng: np.random.Generator) -> NextLost:
    """Start an episode: a function that says of its next n decisions which are lost.

    They have a stream of their own: with the same generator, what is lost at some share is lost at
    every larger one too, and latencies do not depend on how many steps are asked for at a time.
    """
    model = latency.latency if isinstance(latency, OnScaleOf) else latency
    if not isinstance(model, Lossy):
        return lambda n: np.zeros(n, bool)
    share, own = model.share, np.random.default_rng(int(rng.integers(2**63)))
    return lambda n: own.random(n) < share


def loses(latency: LatencyModel) -> bool:
    """Whether decisions can be lost."""
    model = latency.latency if isinstance(latency, OnScaleOf) else latency
    return isinstance(model, Lossy) and model.share > 0


def as_latency(latency: float | LatencyModel) -> LatencyModel:
    """A latency model from a number of seconds or a model."""
    if isinstance(latency, (int, float, np.number)):
        return Fixed(check_time_s(latency, "latency"))
    if isinstance(latency, type) or not callable(getattr(latency, "episode", None)):
        raise ValueError(
            f"latency must be seconds (0.025) or a latency model (Fixed, PerEpisode, PerStep, "
            f"Jittered, Sampled, Trace, Lossy), got {latency!r}"
        )
    return latency
