"""Bounce: a ball that may meet a wall on its way (midstride/CatchBounce-v0), at 100 ms.

Two places where it may come down, and which of them is known late. Trains DQN in the frozen world
(an oracle), in hold, and concurrently at a latency of 100 ms, unaware and knowing, and runs the
frozen world's policies late, as they are. What was expected is in the specification, and is held
against what was found. A training takes about a minute of a core: 8 x 6 in all. Writes what dynamic
does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from rich.console import Console

from midstride.paper import dynamic
from midstride.paper.dynamic import (
    FROZEN,
    HOLD,
    KNOWING,
    LONGER_HOLD,
    RUN_LATE,
    TO_GO,
    UNAWARE,
    Found,
    at,
)
from midstride.paper.regimes import Line, verdicts
from midstride.settings import Range

LATENCY = "100 ms"


@dataclass(frozen=True)
class Options(dynamic.Options):
    """Options of the experiment."""

    first_seed: Annotated[int, Range(0)] = 100
    """seed of the first training of each arm; the others count up from it"""


def reproduce(options: Options, console: Console) -> None:
    """Train every arm, run the frozen world's policies late, hold all against what was expected."""
    dynamic.carry_out("bounce", expected, options, console)


def expected(found: Found, seeds: int) -> Iterator[dict[str, str]]:
    """The lines of the specification, as far as their arms were trained."""
    yield from verdicts(list(_lines(found)), seeds)


def _lines(found: Found) -> Iterator[Line]:
    unaware, knowing = (at(row, LATENCY) for row in (UNAWARE, KNOWING))
    for arm in (knowing, at(TO_GO, LATENCY)):
        yield from dynamic.keeps(found, arm, FROZEN, beyond_hold=True)
        for row in (HOLD, LONGER_HOLD):
            yield from dynamic.is_clearly_above(found, arm, at(row, LATENCY), beyond_hold=True)
    yield from dynamic.is_clearly_above(found, knowing, unaware, beyond_hold=True)
    late = at(RUN_LATE, LATENCY)
    yield from dynamic.is_clearly_above(found, FROZEN, late, paired=True, beyond_hold=True)
