"""Decisions in flight of one environment: the rule of `flight.py` in plain numbers.

Both are tested against the same tick-by-tick reference, and against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from midstride.flight import NEVER


class PlantOfOne(Protocol):
    """A plant that is a single environment."""

    def advance(self, ticks: int) -> int:
        """Go on by `ticks`, or by less; how far it went."""
        ...

    def switch(self, action: Any) -> None:
        """Let `action` pre-empt what the actuators follow; no time passes."""
        ...


class _Decision(NamedTuple):
    number: int
    arrival: int
    latency: int
    starts: tuple[int, ...]  # when each action is meant to start
    actions: Sequence[Any]


class FlightOfOne:
    """The decisions in flight of one environment: `Flight` in plain numbers.

    A step of a small environment takes 40 microseconds, and arrays of length 1 would add 80.
    """

    def __init__(self, most_pending: int = 1) -> None:
        """most_pending: decisions that can be under way at once"""
        self._most_pending = most_pending
        self.reset()

    def reset(self) -> None:
        """Nothing is in flight: the actuators hold."""
        self.now = 0  # since the start of the episode
        self.captures = 0  # decisions made in the episode
        self.in_force = -1  # number of the decision that the actuators follow; -1: none
        self.action: Any = None  # that they follow
        self.latency = 0  # of the decision in force: the latest measured
        self.stale = 0  # decisions of the episode that a newer one overtook
        self._force = _Decision(-1, NEVER, 0, (), ())
        self._pending: list[_Decision] = []  # oldest first

    @property
    def newest_in_force(self) -> bool:
        """Whether the decision made at the last capture is the one in force."""
        return self.in_force == self.captures - 1

    def pending(self, slots: int) -> list[Any]:
        """(First) actions of those of the last `slots` decisions that may still come into force.

        One per decision, oldest first; None where it cannot.
        """
        actions = [None] * slots
        for decision in self._pending:
            if decision.number >= self.captures - slots:
                actions[decision.number - self.captures] = decision.actions[0]
        return actions

    def capture(self, action: Any, latency: int, lost: bool = False) -> None:
        """An observation is taken now; the decision on it enters the flight."""
        self.capture_chunk((action,), (0,), latency, lost)

    def capture_chunk(
        self, actions: Sequence[Any], starts: Sequence[int], latency: int, lost: bool = False
    ) -> None:
        """As `capture`, with a chunk; starts: in ticks after the capture, the first of them 0."""
        if len(self._pending) == self._most_pending:
            self.stale += self._pending.pop(0).arrival < NEVER
        arrival = NEVER if lost else self.now + latency
        meant = tuple([self.now + start for start in starts])
        self._pending.append(_Decision(self.captures, arrival, latency, meant, actions))
        self.captures += 1

    def amend(self, action: Any) -> None:
        """The decision of the last capture is `action` from now on; it arrives when it would have.

        Where it is in force already, the plant switches at the beginning of the next period.
        """
        number, arrival, latency = self.captures - 1, self.now, self.latency
        if self._pending and self._pending[-1].number == number:
            _, arrival, latency, _, _ = self._pending.pop()
        self._pending.append(_Decision(number, arrival, latency, (self.now,), (action,)))

    def period(self, plant: PlantOfOne, ticks: int) -> None:
        """Go on by `ticks`; to the next capture, or a part of the way to it."""
        end = self.now + ticks
        while True:
            if self._arrive():
                plant.switch(self.action)
            if self.now >= end:
                return
            self.now += plant.advance(min(self._next_event(), end) - self.now)

    def _arrive(self) -> bool:
        """Let what has arrived come into force, and a chunk go on; whether the action is new."""
        arrived = [decision for decision in self._pending if decision.arrival <= self.now]
        if arrived:
            self._force = arrived[-1]  # the newest
            self.in_force, self.latency = self._force.number, self._force.latency
            # Older ones would be stale whenever they came.
            later = [decision for decision in self._pending if decision.number > self.in_force]
            dropped = self._pending[: len(self._pending) - len(later)]
            self.stale += sum([decision.arrival < NEVER for decision in dropped]) - 1
            self._pending = later
        elif self.now not in self._force.starts[1:]:
            return False
        due = sum([start <= self.now for start in self._force.starts]) - 1
        self.action = self._force.actions[due]
        return True

    def _next_event(self) -> int:
        """When the next decision arrives, or the next element of a chunk is due."""
        events = [decision.arrival for decision in self._pending]
        events += [start for start in self._force.starts if start > self.now]
        return min(events, default=NEVER)
