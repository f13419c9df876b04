"""Several fitters in step: who computes what of a block, call by call.

A block of k updates is k + 1 calls to each fitter. Each has its part of every batch:

    begin   here is your part of the block   -> the gradient of the first update
    step    everybody's gradients            -> (applies their mean) the gradient of the next
    end     everybody's last gradients       -> (applies their mean) what was measured, weights

No call is made before all have answered the one before: so all have the same state after each
update, or one of them is lost and all go back to what was kept (`Books.go_back`). A single fitter
is given the block as a whole, in one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from midstride.scale.cluster import Reference
from midstride.scale.parcels import Block


class Ask(NamedTuple):
    """A call to make: its method, what it is given, how much it returns."""

    kind: str
    given: tuple[Any, ...]
    returns: int


class Fitting:
    """A block that is being fitted, by all fitters together."""

    def __init__(self, block: Block, fitters: int) -> None:
        self.block, self.fitters = block, fitters
        self._call = 0  # of the k + 1
        self._asked: set[int] = set()  # places
        self._gradients: list[Reference] = []  # of the update before, by place
        self._answers: dict[int, tuple[Any, Sequence[Reference]]] = {}

    def ask(self, place: int) -> Ask | None:
        """What the fitter of a place is to be called for; None if it has been, already."""
        if place in self._asked:
            return None
        self._asked.add(place)
        block = self.block
        if self._call == 0:
            given = (block.fitted[place], block.labels, block.next_key, block.fit_key)
            return Ask("fit", given, 3) if self.fitters == 1 else Ask("begin", given, 2)
        if self._call < block.updates:
            return Ask("step", tuple(self._gradients), 2)
        return Ask("end", tuple(self._gradients), 3)

    def answer(self, place: int, record: Any, data: Sequence[Reference]) -> None:
        """A fitter has done what it was asked for; when all have, the next call is due."""
        self._answers[place] = record, data
        if len(self._answers) < self.fitters or self.has_ended:
            return
        self._gradients = [self._answers[i][1][0] for i in range(self.fitters)]
        self._asked, self._answers, self._call = set(), {}, self._call + 1

    @property
    def has_ended(self) -> bool:
        last = self.block.updates if self.fitters > 1 else 0
        return self._call == last and len(self._answers) == self.fitters

    @property
    def published(self) -> tuple[dict[str, Any], Sequence[Reference]]:
        """The record of the first fitter, with what all measured on average; its weights."""
        record, weights = self._answers[0]
        measured = [self._answers[i][0]["measured"] for i in range(self.fitters)]
        return {**record, "measured": mean_of(measured)}, weights


def mean_of(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Equal parts of a batch: the mean of all is that of theirs."""
    return {name: sum(one[name] for one in measured) / len(measured) for name in measured[0]}
