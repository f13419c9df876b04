"""Decisions in flight of one environment: the rule of `flight.py` in plain numbers.

Both are tested against the same tick-by-tick reference, and against each other. In a simulation a
decision and its latency are known at the capture (`capture`); on the wall clock they turn out later
(`begin`, `tell`).
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


_NO_CHUNK = _Decision(-1, NEVER, 0, (), ())


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
        self.end = 0  # of the period under way; a plant whose episode ends may bring it forward
        self.captures = 0  # decisions made in the episode
        self.in_force = -1  # number of the decision that the actuators follow; -1: none
        self.action: Any = None  # that they follow
        self.latency = 0  # of the decision in force: the latest measured
        self.stale = 0  # decisions of the episode that a newer one overtook
        self._force = _NO_CHUNK
        self._pending: list[_Decision] = []  # oldest first
        self._event = NEVER  # when the next decision arrives, or the next element of a chunk is due

    def rest(self) -> None:
        """Nothing is in force: a robot that holds rests from this capture to its switch."""
        self.in_force, self.action, self._force = -1, None, _NO_CHUNK
        self._event = min([decision.arrival for decision in self._pending], default=NEVER)

    @property
    def newest_in_force(self) -> bool:
        """Whether the decision made at the last capture is the one in force."""
        return self.in_force == self.captures - 1

    @property
    def captured(self) -> int:
        """When the observation was taken that the decision in force was made on."""
        return self._force.starts[0] if self._force.starts else self.now - self.latency

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
        arrival = NEVER if lost else self.now + latency
        self._enter(_Decision(self.captures, arrival, latency, (self.now,), (action,)))

    def capture_chunk(
        self, actions: Sequence[Any], starts: Sequence[int], latency: int, lost: bool = False
    ) -> None:
        """As `capture`, with a chunk; starts: in ticks after the capture, the first of them 0."""
        arrival = NEVER if lost else self.now + latency
        meant = tuple([self.now + start for start in starts])
        self._enter(_Decision(self.captures, arrival, latency, meant, actions))

    def begin(self, captured: int) -> int:
        """An observation was taken at tick `captured`, and what is decided on it is not known yet.

        The number of the decision: it is pending, without an action, until it is told.
        """
        self._enter(_Decision(self.captures, NEVER, 0, (captured,), (None,)))
        return self.captures - 1

    def tell(
        self, number: int, arrival: int, actions: Sequence[Any], starts: Sequence[int] = (0,)
    ) -> bool:
        """What was decided, and when it arrives (NEVER: it is lost); False where it is overtaken.

        actions: one, or a chunk; starts: of each, in ticks after the capture, the first of them 0
        """
        for k, decision in enumerate(self._pending):
            if decision.number == number:
                captured = decision.starts[0]
                meant = tuple([captured + start for start in starts])
                told = _Decision(number, arrival, arrival - captured, meant, actions)
                self._pending[k] = told
                self._event = min(self._event, arrival)
                return True
        self.stale += arrival < NEVER
        return False

    def _enter(self, decision: _Decision) -> None:
        pending = self._pending
        if len(pending) == self._most_pending:
            self.stale += pending.pop(0).arrival < NEVER
        pending.append(decision)
        self.captures += 1
        if decision.arrival < self._event:
            self._event = decision.arrival

    def decide(
        self, plant: PlantOfOne, action: Any, latency: int, ticks: int, lost: bool = False
    ) -> None:
        """`capture`, then `period`; mostly nothing comes but the decision, within the period."""
        if self._pending or lost or latency > ticks or self._event < NEVER:
            self.capture(action, latency, lost)
            self.period(plant, ticks)
            return
        began = self.now
        switch = began + latency
        self.end = began + ticks
        self.captures += 1
        now = began
        while now < switch:
            self.now = now = now + plant.advance(switch - now)
            if self.end <= now < switch:  # the episode ended before it arrived
                self.captures -= 1
                self._enter(_Decision(self.captures, switch, latency, (began,), (action,)))
                return
        self._force = _NO_CHUNK
        self.in_force, self.latency, self.action = self.captures - 1, latency, action
        plant.switch(action)
        while now < self.end:
            self.now = now = now + plant.advance(self.end - now)

    def amend(self, action: Any) -> None:
        """The decision of the last capture is `action` from now on; it arrives when it would have.

        Where it is in force already, the plant switches at the beginning of the next period.
        """
        number, arrival, latency = self.captures - 1, self.now, self.latency
        if self._pending and self._pending[-1].number == number:
            _, arrival, latency, _, _ = self._pending.pop()
        self._pending.append(_Decision(number, arrival, latency, (self.now,), (action,)))
        self._event = min(self._event, arrival)

    def period(self, plant: PlantOfOne, ticks: int) -> None:
        """Go on by `ticks`; to the next capture, or a part of the way to it."""
        self.end = self.now + ticks
        while True:
            if self._event <= self.now and self._arrive():
                plant.switch(self.action)
            if self.now >= self.end:
                return
            event = self._event
            self.now += plant.advance((event if event < self.end else self.end) - self.now)

    def _arrive(self) -> bool:
        """Let what has arrived come into force, and a chunk go on; whether the action is new."""
        now, pending = self.now, self._pending
        newest = len(pending) - 1
        while newest >= 0 and pending[newest].arrival > now:
            newest -= 1
        if newest >= 0:
            self._force = pending[newest]
            self.in_force, self.latency = self._force.number, self._force.latency
            if newest:  # older ones would be stale whenever they came
                self.stale += sum([decision.arrival < NEVER for decision in pending[:newest]])
            del pending[: newest + 1]
        starts = self._force.starts
        is_new = newest >= 0 or now in starts[1:]
        if is_new:
            due = 0 if len(starts) == 1 else sum([start <= now for start in starts]) - 1
            self.action = self._force.actions[due]
        self._event = NEVER
        if pending or len(starts) > 1:
            events = [decision.arrival for decision in pending]
            self._event = min(events + [start for start in starts if start > now], default=NEVER)
        return is_new
