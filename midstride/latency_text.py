"""Latencies as people write them, and as files hold them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, cast, get_args

from midstride.latency import (
    Fixed,
    Jittered,
    LatencyModel,
    Lossy,
    PerEpisode,
    PerStep,
    Rounding,
    Trace,
    as_latency,
)
from midstride.seconds import check_time_s, parse_s
from midstride.settings import shown

_LONG_NAME = 60


def parse_latency(text: str) -> LatencyModel:
    """A latency model from the command line.

    '25ms' is fixed; 'episode:0,5ms,25ms' is drawn at each reset; 'step:0,5ms,25ms' at each step;
    'jitter:25ms,10ms' at each step from 15 to 35 ms; 'trace:latencies.csv' replays measured ones,
    which must fit the tick, unless it is said how they are rounded: 'trace:latencies.csv,up' or
    'trace:latencies.csv,nearest'; 'replay:12ms,15ms,up' is a trace by its values: what the files of
    a run hold of it. 'lost:0.1:25ms', or lost:0.1: before any of these, loses a tenth of the
    decisions.
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        return Fixed(check_time_s(parse_s(text), "latency"))
    if kind == "trace":
        return _parse_trace(rest)
    if kind == "lost":
        return _parse_lossy(text, rest)
    if kind == "jitter":
        mean, comma, spread = rest.partition(",")
        if not comma:
            raise ValueError(f"{text!r} needs a mean and a spread: write jitter:25ms,10ms")
        return Jittered(parse_s(mean), parse_s(spread))
    if kind == "replay":
        return _parse_replay(rest)
    if kind not in ("episode", "step"):
        raise ValueError(
            f"{text!r} is not a latency: write 25ms, episode:0,5ms,25ms, step:0,5ms,25ms, "
            "jitter:25ms,10ms, trace:latencies.csv, trace:latencies.csv,up or lost:0.1:25ms"
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
        case Jittered(mean_s, spread_s, "nearest"):
            return f"jitter:{float(mean_s)!r},{float(spread_s)!r}"
        case Lossy(inner, share):
            return f"lost:{float(share)!r}:{latency_text(inner)}"
        case int() | float():
            return repr(latency)
    raise ValueError(f"this latency cannot be written to a file: {latency!r}")


def _parse_lossy(text: str, rest: str) -> Lossy:
    """A latency with lost decisions from what follows 'lost:'."""
    share, colon, latency = rest.partition(":")
    try:
        number = float(share)
    except ValueError:
        colon = ""
    if not colon:
        raise ValueError(
            f"{text!r} needs the share of lost decisions and a latency: write lost:0.1:25ms"
        )
    return Lossy(parse_latency(latency), number)


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
