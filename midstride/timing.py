"""Time in a world that does not wait: the words, the rules, and the latency models.

    capture t          switch t+t_AS                      next capture t+H
       |--- a_{i-1} still executing ---|------ a_i executing ------|--- a_i still ...
       |<------- latency t_AS -------->|<------ execution -------->|
       |<------------------------ period H ----------------------->|

capture     the instant at which the observation is taken
latency     t_AS: from capture to switch (state capture + communication + inference)
switch      the instant at which the new action pre-empts the old one, finished or not
execution   H - t_AS: how long the new action has run at the next capture
period      H: from capture to capture
tick        one step of the physics; every time is a whole number of ticks

All times are seconds (`_s`); ticks (`_ticks`) exist only inside a simulation. A latency model
says which latencies may occur; `Timing` checks that they fit the tick and the period, and draws
the schedule of an episode. Nothing else in midstride samples a latency.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Protocol, cast, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Rounding = Literal["exact", "up", "nearest"]
NextLatencies = Callable[[int], NDArray[np.float64]]

# A time may miss the tick grid by this share of a tick: float noise such as 3 * 0.005.
_TOLERANCE_TICKS = 1e-6
_MAX_TICKS = 2**30


# --- Seconds and ticks ---------------------------------------------------------------------------


def format_s(time_s: float, digits: int = 6) -> str:
    """A time as people read it: '25 ms', '0.5 ms', '2 s'."""
    if abs(time_s) < 1:
        return f"{time_s * 1e3:.{digits}g} ms"
    return f"{time_s:.{digits}g} s"


def parse_s(text: str) -> float:
    """Seconds from text: '25ms', '0.025s', '500us' or a bare number of seconds."""
    match = re.fullmatch(r"\s*([-+0-9.eE]+|nan|inf)\s*(us|ms|s|)\s*", text, re.IGNORECASE)
    try:
        if match is None:
            raise ValueError
        value = float(match[1])
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: write seconds (0.025) or a unit (25ms, 0.5s, 500us)"
        ) from None
    return value * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}[match[2].lower()]


def check_time_s(time_s: float, what: str) -> float:
    """`time_s` as a float, if it is a finite number of seconds that is not negative."""
    if isinstance(time_s, bool) or not isinstance(time_s, (int, float, np.number)):
        raise ValueError(f"{what} must be a number of seconds, got {time_s!r}")
    value = float(time_s)
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{what} must be a finite time of at least 0 s, got {value} s")
    return value


def check_tick_s(tick_s: float) -> float:
    """`tick_s` as a float, if physics can be stepped by it."""
    if check_time_s(tick_s, "physics tick") == 0:
        raise ValueError("a physics tick must be longer than 0 s")
    return float(tick_s)


class DoesNotFit(ValueError):
    """A time that is not a whole number of ticks, and would be one of finer ticks."""


def to_ticks(
    time_s: float, tick_s: float, what: str, low_ticks: int = 0, high_ticks: int = _MAX_TICKS
) -> int:
    """The whole number of ticks in `time_s`.

    If there is none, the error names the nearest times that would be accepted, from low to high.
    """
    if check_time_s(time_s, what) / tick_s > _MAX_TICKS:
        raise ValueError(
            f"{what} of {format_s(time_s)} is too long to be counted in physics ticks of "
            f"{format_s(tick_s)}: the longest time is {format_s(_MAX_TICKS * tick_s)}"
        )
    ticks = _whole_ticks(time_s, tick_s)
    if ticks is not None:
        return ticks
    below = math.floor(time_s / tick_s)
    nearest = sorted({min(below, high_ticks), max(below + 1, low_ticks)})
    valid = [_format_on_grid(k, tick_s) for k in nearest if low_ticks <= k <= high_ticks]
    name = "nearest valid times are" if len(valid) > 1 else "nearest valid time is"
    raise DoesNotFit(
        f"{what} of {format_s(time_s)} is not a whole number of physics ticks of "
        f"{format_s(tick_s)}: the {name} {' and '.join(valid)}"
    )


def _whole_ticks(time_s: float, tick_s: float) -> int | None:
    """The whole number of ticks in a time, or None where it is not one."""
    ticks = time_s / tick_s
    whole = round(ticks)
    return whole if abs(ticks - whole) <= max(_TOLERANCE_TICKS, 1e-12 * whole) else None


def _format_on_grid(ticks: int, tick_s: float) -> str:
    """A time of whole ticks, with as many digits as it needs to be one when it is typed."""
    for digits in (6, 9, 12):
        text = format_s(ticks * tick_s, digits)
        if _whole_ticks(parse_s(text), tick_s) == ticks:
            return text
    return format_s(ticks * tick_s, 17)


def check_divides(tick_s: float, timestep_s: float) -> None:
    """An error unless a physics timestep can be divided into ticks of `tick_s`."""
    if _whole_ticks(timestep_s, check_tick_s(tick_s)):
        return

    def divides(parts: int) -> bool:
        return _whole_ticks(timestep_s, parse_s(format_s(timestep_s / parts))) == parts

    below = math.floor(timestep_s / tick_s)
    coarser = next((k for k in range(below, 0, -1) if divides(k)), None)
    finer = next((k for k in range(below + 1, below + 101) if divides(k)), None)
    valid = [format_s(timestep_s / parts) for parts in (coarser, finer) if parts is not None]
    raise ValueError(
        f"a tick of {format_s(tick_s)} does not divide the environment's own timestep of "
        f"{format_s(timestep_s)}: valid ticks near it are "
        f"{' and '.join(valid) or repr(timestep_s) + ' s'}"
    )


def finer_tick_s(times_s: Iterable[float], tick_s: float) -> float | None:
    """The longest tick of which `tick_s` and all `times_s` are whole numbers, if one is sensible.

    Sensible: at most 100 of them in a tick, and written with few digits.
    """
    times_s = tuple(times_s)
    for parts in range(2, 101):
        finer_s = float(f"{tick_s / parts:.6g}")
        if all(_whole_ticks(time_s, finer_s) is not None for time_s in (tick_s, *times_s)):
            return finer_s
    return None


# --- Latency models ------------------------------------------------------------------------------


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
        return cls(tuple(_read_trace(Path(path))), rounding, start)

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


def _read_trace(path: Path) -> list[float]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets put a mark before the text
        lines = [row for row in csv.reader(text.splitlines()) if any(row)]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the latency trace {path}: {error}") from None
    if not lines:
        raise ValueError(f"the latency trace {path} is empty: it needs one latency per line")

    header = [cell.strip().lower() for cell in lines[0]]
    column, unit, first = 0, 1.0, 0
    named = [i for i, name in enumerate(header) if name in ("latency_s", "latency_ms")]
    if named:
        column, first = named[0], 1
        unit = 1e-3 if header[column] == "latency_ms" else 1.0
    elif len(header) > 1:
        raise ValueError(
            f"the latency trace {path} has {len(header)} columns and none is named latency_s or "
            f"latency_ms: {', '.join(header)}"
        )
    latencies_s = []
    for number, row in enumerate(lines[first:], start=first + 1):
        try:
            latencies_s.append(float(row[column]) * unit)
        except (ValueError, IndexError):
            raise ValueError(
                f"row {number} of the latency trace {path} has no latency: {','.join(row)!r}"
            ) from None
    if not latencies_s:
        raise ValueError(f"the latency trace {path} has a header and no latencies")
    return latencies_s


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
    are rounded: 'trace:latencies.csv,up' or 'trace:latencies.csv,nearest'.
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        return Fixed(check_time_s(parse_s(text), "latency"))
    if kind == "trace":
        return _parse_trace(rest)
    if kind not in ("episode", "step"):
        raise ValueError(
            f"{text!r} is not a latency: write 25ms, episode:0,5ms,25ms, step:0,5ms,25ms, "
            "trace:latencies.csv or trace:latencies.csv,up"
        )
    choices_s = tuple(parse_s(part) for part in rest.split(",") if part.strip())
    return PerEpisode(choices_s) if kind == "episode" else PerStep(choices_s)


# What settings hold: as it is written, so that a file can keep it.
Time = Annotated[str | float, "a time such as 25ms or 0.025 (seconds)"]
Latency = Annotated[
    str | float | LatencyModel,
    "a latency such as 25ms, 0.025 (seconds) or episode:0,25ms, or a latency model",
]


def read_latency(latency: str | float | LatencyModel) -> LatencyModel:
    """A latency model from text, a number of seconds or a model."""
    return parse_latency(latency) if isinstance(latency, str) else as_latency(latency)


def latency_text(latency: str | float | LatencyModel) -> str:
    """A latency as a file can hold it; an error for a model that only Python can."""
    match latency:
        case str():
            return latency
        case Fixed(latency_s, "exact"):
            return repr(float(latency_s))
        case PerEpisode(choices_s, None, "exact"):
            return "episode:" + ",".join(map(repr, choices_s))
        case PerStep(choices_s, None, "exact"):
            return "step:" + ",".join(map(repr, choices_s))
        case int() | float():
            return repr(latency)
    raise ValueError(f"this latency cannot be written to a file: {latency!r}")


def seconds_of(time: str | float) -> float:
    """Seconds from text ('25ms') or a number of them."""
    return parse_s(time) if isinstance(time, str) else time


def as_seconds(time: str | float | None) -> float | None:
    """The same; None stays None."""
    return None if time is None else seconds_of(time)


def time_text(time: str | float | None) -> str | None:
    """A time as a file can hold it."""
    return time if time is None or isinstance(time, str) else repr(time)


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


# --- Timing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """A latency model with a fixed `period_s` or a fixed `execution_s`, on a grid of ticks.

    With `period_s` the capture rate is constant and a longer latency leaves less execution; with
    `execution_s` each period lasts as long as its latency plus the execution (the paper's toy
    tasks). Exactly one of the two is given. Everything is checked here, once.
    """

    latency: LatencyModel
    period_s: float | None = None
    execution_s: float | None = None
    tick_s: float = 0.005

    def __post_init__(self) -> None:
        check_tick_s(self.tick_s)
        if (self.period_s is None) == (self.execution_s is None):
            raise ValueError("give either a period or an execution time, not both or neither")
        values_s = np.asarray(self.latency.values_s, float)
        if values_s.max() > _MAX_TICKS * self.tick_s:
            raise ValueError(
                f"a latency of {format_s(values_s.max())} is too long to be counted in physics "
                f"ticks of {format_s(self.tick_s)}: the longest is "
                f"{format_s(_MAX_TICKS * self.tick_s)}"
            )
        if self.period_s is not None:
            self._check_period(self.period_s, values_s)
        else:
            assert self.execution_s is not None
            self._check_execution(self.execution_s, values_s)

    def _check_period(self, period_s: float, values_s: NDArray[np.float64]) -> None:
        """The latency and the period, each within what the other allows.

        So an error never names a time that the next one refuses.
        """
        longest = self._cover_ticks(float(values_s.max()))
        whole_ticks = _whole_ticks(check_time_s(period_s, "period"), self.tick_s)
        room = math.floor(period_s / self.tick_s) if whole_ticks is None else whole_ticks
        if longest <= room:
            self._check_latencies(values_s, 0, room)
        period_ticks = to_ticks(period_s, self.tick_s, "period", low_ticks=max(1, longest))
        if period_ticks == 0:
            raise ValueError(
                "a period of 0 ms would last 0 s, and time must pass between two observations: "
                f"the shortest valid period is {_format_on_grid(max(1, longest), self.tick_s)}"
            )
        if longest > period_ticks:
            raise ValueError(self._too_long(float(values_s.max()), longest, period_ticks))

    def _check_execution(self, execution_s: float, values_s: NDArray[np.float64]) -> None:
        shortest = self._cover_ticks(float(values_s.min()))
        execution_ticks = to_ticks(
            execution_s, self.tick_s, "execution", low_ticks=1 if shortest == 0 else 0
        )
        self._check_latencies(values_s, 1 if execution_ticks == 0 else 0, _MAX_TICKS)
        if execution_ticks + shortest == 0:
            raise ValueError(
                "a period would last 0 s, because latency and execution can both be 0, and time "
                "must pass between two observations: give an execution of at least "
                f"{_format_on_grid(1, self.tick_s)}"
            )

    def _check_latencies(self, values_s: NDArray[np.float64], low: int, high: int) -> None:
        """Every latency that can occur is a whole number of ticks, if none is rounded."""
        if self.latency.rounding != "exact":
            return
        for value_s in values_s:
            try:
                to_ticks(value_s, self.tick_s, "latency", low, high)
            except DoesNotFit as error:
                if not isinstance(self.latency, Trace):
                    raise
                raise DoesNotFit(
                    f"{error}; or say how the trace is rounded: rounding='up' or 'nearest', on "
                    "the command line trace:latencies.csv,up or trace:latencies.csv,nearest"
                ) from None

    def _cover_ticks(self, latency_s: float) -> int:
        """A latency after rounding; of one that does not fit, the next tick."""
        if self.latency.rounding == "exact" and _whole_ticks(latency_s, self.tick_s) is None:
            return math.ceil(latency_s / self.tick_s)
        return int(self._to_ticks(np.array(latency_s)))

    def _too_long(self, latency_s: float, latency_ticks: int, period_ticks: int) -> str:
        """What is said of a latency longer than the period."""
        if self.latency.rounding != "exact":
            latency_s = latency_ticks * self.tick_s
        period = _format_on_grid(period_ticks, self.tick_s)
        wrong = f"a latency of {format_s(latency_s)} is longer than the period of {period}"
        as_ms = _whole_ticks(latency_s * 1e-3, self.tick_s)
        if as_ms is not None and as_ms <= period_ticks:
            return f"{wrong}: did you mean {latency_s:.6g}ms?"
        return (
            f"{wrong}, and the next action would be ready only after the next observation: the "
            f"longest valid latency is {period}"
        )

    def _to_ticks(self, latencies_s: NDArray[np.float64]) -> NDArray[np.int64]:
        ticks = latencies_s / self.tick_s
        if self.latency.rounding == "up":
            return np.ceil(ticks - _TOLERANCE_TICKS).astype(np.int64)
        return np.rint(ticks).astype(np.int64)

    @cached_property
    def latency_bounds_ticks(self) -> tuple[int, int]:
        """The shortest and the longest latency that can occur."""
        ticks = self._to_ticks(np.asarray(self.latency.values_s, float))
        return int(ticks.min()), int(ticks.max())

    @property
    def latency_high_s(self) -> float:
        """The longest latency that can occur: it scales the `selection_time` feature."""
        return self.latency_bounds_ticks[1] * self.tick_s

    @cached_property
    def shortest_period_ticks(self) -> int:
        if self.period_s is not None:
            return to_ticks(self.period_s, self.tick_s, "period")
        assert self.execution_s is not None
        execution_ticks = to_ticks(self.execution_s, self.tick_s, "execution")
        return execution_ticks + self.latency_bounds_ticks[0]

    @property
    def longest_period_s(self) -> float:
        if self.period_s is not None:
            return self.period_s
        assert self.execution_s is not None
        return self.execution_s + self.latency_high_s

    def episode(
        self, rng: np.random.Generator
    ) -> Callable[[int], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Start an episode: a function that gives (latency_ticks, period_ticks) of n steps."""
        next_latencies = self.latency.episode(rng)

        def following(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            latency_ticks = self._to_ticks(next_latencies(n))
            if self.period_s is not None:
                return latency_ticks, np.full(n, self.shortest_period_ticks)
            assert self.execution_s is not None
            execution_ticks = to_ticks(self.execution_s, self.tick_s, "execution")
            return latency_ticks, latency_ticks + execution_ticks

        return following


class Schedule:
    """The latencies and periods of the coming steps of n environments.

    Those of a whole episode are drawn when it begins, from the environment's own generator: no
    Python loop while stepping, and no environment depends on another.
    """

    def __init__(self, timing: Timing, n: int, steps: int) -> None:
        """steps: of the longest episode; what comes after them repeats the last."""
        self._timing = timing
        self._latency = np.zeros((n, steps), np.int64)
        self._period = np.zeros((n, steps), np.int64)
        self.steps = np.zeros(n, np.int64)  # taken in the episodes under way

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """An episode begins in environment i."""
        self._latency[i], self._period[i] = self._timing.episode(rng)(self._latency.shape[1])
        self.steps[i] = 0

    def coming(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ticks of latency and of period of the next step, (n,) each."""
        at = np.arange(len(self.steps)), np.minimum(self.steps, self._latency.shape[1] - 1)
        return self._latency[at], self._period[at]
