"""Seconds and ticks: times as people write them, and as whole numbers of physics ticks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Annotated

import numpy as np

# A time may miss the tick grid by this share of a tick: float noise such as 3 * 0.005.
TOLERANCE_TICKS = 1e-6
MAX_TICKS = 2**30

# What settings hold: as it is written, so that a file can keep it.
Time = Annotated[str | float, "a time such as 25ms or 0.025 (seconds)"]


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
    if check_time_s(tick_s, "physics tick") < 1e-12:  # no time could be counted in it
        raise ValueError(f"a physics tick must be longer than 0 s, got {format_s(tick_s)}")
    return float(tick_s)


class DoesNotFit(ValueError):
    """A time that is not a whole number of ticks, and would be one of finer ticks."""


def to_ticks(
    time_s: float, tick_s: float, what: str, low_ticks: int = 0, high_ticks: int = MAX_TICKS
) -> int:
    """The whole number of ticks in `time_s`.

    If there is none, the error names the nearest times that would be accepted, from low to high.
    """
    if check_time_s(time_s, what) / tick_s > MAX_TICKS:
        raise ValueError(
            f"{what} of {format_s(time_s)} is too long to be counted in physics ticks of "
            f"{format_s(tick_s)}: the longest time is {format_s(MAX_TICKS * tick_s)}"
        )
    ticks = whole_ticks(time_s, tick_s)
    if ticks is not None:
        return ticks
    below = math.floor(time_s / tick_s)
    nearest = sorted({min(below, high_ticks), max(below + 1, low_ticks)})
    valid = [format_on_grid(k, tick_s) for k in nearest if low_ticks <= k <= high_ticks]
    name = "nearest valid times are" if len(valid) > 1 else "nearest valid time is"
    raise DoesNotFit(
        f"{what} of {format_s(time_s)} is not a whole number of physics ticks of "
        f"{format_s(tick_s)}: the {name} {' and '.join(valid)}"
    )


def whole_ticks(time_s: float, tick_s: float) -> int | None:
    """The whole number of ticks in a time, or None where it is not one."""
    ticks = time_s / tick_s
    whole = round(ticks)
    return whole if abs(ticks - whole) <= max(TOLERANCE_TICKS, 1e-12 * whole) else None


def format_on_grid(ticks: int, tick_s: float) -> str:
    """A time of whole ticks, with as many digits as it needs to be one when it is typed."""
    for digits in (6, 9, 12):
        text = format_s(ticks * tick_s, digits)
        if whole_ticks(parse_s(text), tick_s) == ticks:
            return text
    return format_s(ticks * tick_s, 17)


def check_divides(tick_s: float, timestep_s: float) -> None:
    """An error unless a physics timestep can be divided into ticks of `tick_s`."""
    if whole_ticks(timestep_s, check_tick_s(tick_s)):
        return

    def divides(parts: int) -> bool:
        return whole_ticks(timestep_s, parse_s(format_s(timestep_s / parts))) == parts

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
        if all(whole_ticks(time_s, finer_s) is not None for time_s in (tick_s, *times_s)):
            return finer_s
    return None


def seconds_of(time: str | float) -> float:
    """Seconds from text ('25ms') or a number of them."""
    return parse_s(time) if isinstance(time, str) else time


def as_seconds(time: str | float | None) -> float | None:
    """The same; None stays None."""
    return None if time is None else seconds_of(time)


def time_text(time: str | float | None) -> str | None:
    """A time as a file can hold it."""
    return time if time is None or isinstance(time, str) else repr(time)
