"""How a figure is measured and printed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured figure. `peer` is what it is compared with, `limit` what physics allows."""

    figure: str
    value: float
    unit: str
    peer: str
    limit: float | None = None


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rates(works: dict[str, tuple[Callable[[], object], float]], repeats: int) -> dict[str, float]:
    """Median amount per second of each kind of work.

    Each is (function, amount that one call does). All take turns in every repeat, so that a
    machine that slows down for a while slows them all; the first round warms up and is dropped.
    """
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, (work, amount) in works.items():
            samples[name].append(amount / seconds(work))
    return {name: float(np.median(values[1:])) for name, values in samples.items()}


def show(figures: list[Figure]) -> None:
    """A table for people, then one JSON line per figure."""
    table = Table()
    for title in ("figure", "value", "against", "limit"):
        table.add_column(title, overflow="fold")
    for f in figures:
        limit = "" if f.limit is None else f"{f.limit:g} {f.unit}"
        table.add_row(f.figure, f"{f.value:.3g} {f.unit}", f.peer, limit)
    Console(width=120).print(table)
    for f in figures:
        print(json.dumps(asdict(f)))
