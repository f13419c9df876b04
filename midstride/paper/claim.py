"""A claim of the paper, and what came of it: how it is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from midstride.measure.statistics import Estimate
from midstride.paper.study import FEW


@dataclass(frozen=True)
class Claim:
    """What the paper says, and what came of it."""

    text: str
    verdict: str  # reproduced, contradicted, not shown, not tested; in part
    interval: str = ""
    folder: str = ""
    sentence: str = ""


def text_of(make: Callable[[Path], Iterator[Claim]]) -> str:
    """The claim as the first line under its function has it."""
    return (make.__doc__ or "").strip().splitlines()[0]


def interval_text(found: Estimate) -> str:
    digits = 1 if abs(found.value) < 10 else 0
    return f"{found.value:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"


def few(verdict: str, trainings: int) -> str:
    return verdict if trainings >= FEW else f"{verdict} (a sketch: {trainings} trainings)"
