"""Latency models: which latencies may occur, and in which order.

Nothing else in midstride samples a latency. A model is frozen and holds no random state; `Timing`
checks that its latencies fit the tick and the period.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol, cast, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from midstride.seconds import check_time_s, format_s, parse_s
from midstride.settings import shown
from midstride.traces import read_trace

Rounding = Literal["exact", "up", "nearest"]
NextLatencies = Callable[[int], NDArray[np.float64]]
_LONG_NAME = 60


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
class OnScaleOf:
    """A latency, measured on the scale of another: that which a policy was trained with.

    Selection time is scaled by the longest latency that can occur. A policy that was trained with
    up to 50 ms would take a fixed 10 ms for 50 ms, if 10 ms were all that can occur.
    """

    trained: LatencyModel
    latency: LatencyModel

    @property
    def values_s(self) -> NDArray[np.float64]:
        return np.append(self.latency.values_s, np.max(self.trained.values_s))

    @property
    def rounding(self) -> Rounding:
        return self.latency.rounding

    def episode(self, rng: np.random.Generator) -> NextLatencies:
        return self.latency.episode(rng)


def as_latency(latency: float | LatencyModel) -> LatencyModel:
    """A latency model from a number of seconds or a model."""
    if isinstance(latency, (int, float, np.number)):
        return Fixed(check_time_s(latency, "latency"))
    if isinstance(latency, type) or not callable(getattr(latency, "episode", None)):
        raise ValueError(
            f"latency must be seconds (0.025) or a latency model (Fixed, PerEpisode, PerStep, "
            f"Sampled, Trace), got {latency!r}"
        )
    return latency


def parse_latency(text: str) -> LatencyModel:
    """A latency model from the command line.

    '25ms' is fixed; 'episode:0,5ms,25ms' is drawn at each reset; 'step:0,5ms,25ms' at each step;
    'trace:latencies.csv' replays measured ones, which must fit the tick, unless it is said how they
    are rounded: 'trace:latencies.csv,up' or 'trace:latencies.csv,nearest'. 'replay:12ms,15ms,up' is
    a trace by its values: what a run's files hold of it.
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        return Fixed(check_time_s(parse_s(text), "latency"))
    if kind == "trace":
        return _parse_trace(rest)
    if kind == "replay":
        return _parse_replay(rest)
    if kind not in ("episode", "step"):
        raise ValueError(
            f"{text!r} is not a latency: write 25ms, episode:0,5ms,25ms, step:0,5ms,25ms, "
            "trace:latencies.csv or trace:latencies.csv,up"
        )
    choices_s = tuple(parse_s(part) for part in rest.split(",") if part.strip())
    return PerEpisode(choices_s) if kind == "episode" else PerStep(choices_s)


Latency = Annotated[
    str | float | LatencyModel,
    "a latency such as 25ms, 0.025 (seconds) or episode:0,25ms, or a latency model",
]


def read_latency(latency: str | float | LatencyModel) -> LatencyModel:
    """A latency model from text, a number of seconds or a model."""
    try:
        return parse_latency(latency) if isinstance(latency, str) else as_latency(latency)
    except RecursionError:
        raise ValueError("a latency is not made of so many others") from None


def latency_text(latency: str | float | LatencyModel) -> str:
    """A latency as a file can hold it; an error for a model that only Python can.

    A file holds the values of a trace, not where they were read from: it says all by itself.
    """
    match latency:
        case str() if "trace:" in latency:
            return latency_text(parse_latency(latency))
        case str():
            return latency
        case Trace(latencies_s, rounding, "random"):
            return "replay:" + ",".join([*map(repr, latencies_s), rounding])
        case Fixed(latency_s, "exact"):
            return repr(float(latency_s))
        case PerEpisode(choices_s, None, "exact"):
            return "episode:" + ",".join(map(repr, choices_s))
        case PerStep(choices_s, None, "exact"):
            return "step:" + ",".join(map(repr, choices_s))
        case int() | float():
            return repr(latency)
    raise ValueError(f"this latency cannot be written to a file: {latency!r}")


def settled(latency: str | float | LatencyModel) -> str | float | LatencyModel:
    """The same, with a trace read here and now: what its file holds later changes nothing."""
    named = isinstance(latency, str) and ("trace:" in latency or "replay:" in latency)
    return read_latency(latency) if named else latency


def latency_name(latency: str | float | LatencyModel) -> str:
    """A latency as it is shown: its text, or a short one that stands for many values."""
    text = latency_text(latency)
    if len(text) <= _LONG_NAME:
        return text
    return f"{text.partition(':')[0]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _parse_trace(text: str) -> Trace:
    """A trace from 'latencies.csv' or 'latencies.csv,up'; a file's own name may have a comma."""
    path, comma, rounding = text.rpartition(",")
    if not comma or Path(text).exists():
        return Trace.from_csv(text)
    if rounding not in get_args(Rounding):
        raise ValueError(
            f"there is no latency trace {text}, and {rounding!r} is no rounding: write {path}, "
            f"{path},up or {path},nearest"
        )
    return Trace.from_csv(path, cast(Rounding, rounding))


def _parse_replay(text: str) -> Trace:
    """A trace from its values, '12ms,15ms' or '12ms,15ms,up'."""
    *times, last = text.split(",")
    if last not in get_args(Rounding):
        times, last = [*times, last], "exact"
    return Trace(tuple(parse_s(time) for time in times), cast(Rounding, last))


def latency_of_file(text: str, folder: Path | None) -> str:
    """A setting as a file has it, with the values of a trace in place of its file's name.

    folder: where the trace must lie, links followed; None: there can be none
    """
    if "trace:" not in text.casefold():
        return text
    before, _, named = text.partition("trace:")
    path, comma, rounding = named.rpartition(",")
    if not comma or rounding not in get_args(Rounding):
        path, rounding = named, ""
    try:
        inside = (folder or Path()).resolve()
        place = (inside / path).resolve()
        is_inside = folder is not None and place.is_relative_to(inside)
    except (OSError, ValueError, RuntimeError):  # no name of a file, or a link that leads to itself
        is_inside = False
    if not is_inside or (before and not before.endswith(":")):
        raise ValueError(
            f"the latency {shown(text)} comes from a file, which can name traces in its own folder "
            "only: if you know who wrote the file, add --trust (in Python: trust=True)"
        )
    trace = Trace.from_csv(place, cast(Rounding, rounding or "exact"))
    return before + latency_text(trace)
