"""Decisions in flight: the one clock. Everything in midstride that moves, moves by this rule.

A decision enters the flight at its capture and arrives `latency` ticks later, or never if it is
lost. Until then it is *pending*. When it arrives it pre-empts what is *in force*, finished or not,
unless a decision made on a newer observation came into force before it: the newest observation
wins, and the older decision is *stale*. What is in force stays so until something pre-empts it.
Nobody is told that a decision is lost: it is taken for pending until a newer one comes into force,
or until so many captures later that it would have arrived.

A decision is one action or a chunk of them: element k is meant for the time from `starts[k]` ticks
after the capture on. A chunk that arrives late begins with the element that is due by then; the
last element stays in force.

On a robot that *holds* nothing is in force while the policy thinks: at every capture the null
action pre-empts what was, and the decision on that capture ends the rest.

Two kinds of thinker differ only in when the next observation is taken (`capture_interval`). A
`Plant` is what moves: it knows nothing of latency, only how to go on and how to switch. All arrays
have the environments as their first axis; times are physics ticks. `flight_of_one.py` is the same
rule for a single environment, where arrays would cost more than the physics; one oracle tests both.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Ticks = NDArray[np.int64]
Mask = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max // 4  # a tick that does not come


class Plant(Protocol):
    """What moves while the policy thinks: physics, a wrapped environment, a robot."""

    def advance(self, running: Mask, ticks: int, ahead: Ticks) -> int:
        """Go on by `ticks`, or by less, in the environments `running`; how far it went.

        ahead: ticks to the next switch or capture of each environment
        """
        ...

    def switch(self, which: Mask, actions: NDArray[Any]) -> None:
        """Let `actions[which]` pre-empt what the actuators follow; no time passes."""
        ...

    def at_rest(self) -> Mask:
        """Whose motion is completed: asked only where a period lasts until then."""
        ...


class Flight:
    """The decisions in flight of n environments, and the walk from one capture to the next."""

    def __init__(
        self,
        n: int,
        action_shape: tuple[int, ...],
        most_pending: int = 1,
        chunk: int = 1,
        holds: bool = False,
    ) -> None:
        """most_pending: decisions that can be under way at once (`Timing.most_pending`).

        chunk: actions of a decision
        holds: whether the plant rests, by the null action (all 0), from each capture to its switch
        """
        self.n, self.most_pending, self.holds = n, most_pending, holds
        self._to_rest = np.zeros(n, bool)  # captured just now: the plant is to be told
        self.now = np.zeros(n, np.int64)  # since the start of the episode
        self.captures = np.zeros(n, np.int64)  # decisions made in the episode
        self.in_force = np.full(n, -1)  # number of the decision that the actuators follow; -1: none
        self.action = np.zeros((n, *action_shape))  # that they follow; 0 if none
        self.latency = np.zeros(n, np.int64)  # of the decision in force: the latest measured
        self.stale = np.zeros(n, np.int64)  # decisions of the episode that a newer one overtook
        # The decision in force, and those that are pending: number (-1: no decision), arrival,
        # when each action is meant to start, actions.
        self._force_starts = np.full((n, chunk), NEVER)
        self._force_actions = np.zeros((n, chunk, *action_shape))
        self._number = np.full((n, most_pending), -1)
        self._arrival = np.full((n, most_pending), NEVER)
        self._starts = np.full((n, most_pending, chunk), NEVER)
        self._actions = np.zeros((n, most_pending, chunk, *action_shape))

    def reset(self, ids: NDArray[np.integer]) -> None:
        """Nothing is in flight in environments `ids`: their actuators hold."""
        for zero in (self.now, self.captures, self.action, self.latency, self.stale):
            zero[ids] = 0
        for none in (self.in_force, self._number):
            none[ids] = -1
        for never in (self._force_starts, self._arrival, self._starts):
            never[ids] = NEVER
        self._actions[ids] = 0
        self._to_rest[ids] = False

    @property
    def newest_in_force(self) -> Mask:
        """Where the decision made at the last capture is the one in force."""
        return self.in_force == self.captures - 1

    def count_pending(self) -> NDArray[np.int64]:
        """How many decisions may still come into force, in each environment, at a capture."""
        room = self._number.shape[1] - 1
        if not room:
            return np.zeros(self.n, np.int64)
        return np.minimum(self.captures - 1 - self.in_force, room)

    def pending(self, slots: int) -> tuple[Mask, NDArray[Any]]:
        """Of the last `slots` decisions, oldest first, those that may still come into force.

        Which there are (n, slots), and their (first) actions (n, slots, *shape), 0 where there is
        none; `Timing.pending_slots` are enough for all that can arrive.
        """
        there = np.zeros((self.n, slots), bool)
        actions = np.zeros((self.n, slots, *self.action.shape[1:]))
        if slots:
            first = self.captures[:, None] - slots
            rows, stored = np.nonzero((self._number >= 0) & (self._number >= first))
            columns = self._number[rows, stored] - first[rows, 0]
            there[rows, columns] = True
            actions[rows, columns] = self._actions[rows, stored, 0]
        return there, actions

    def capture(
        self,
        actions: NDArray[Any],
        latency: Ticks,
        active: Mask | None = None,
        lost: Mask | None = None,
        starts: Ticks | None = None,
    ) -> None:
        """An observation is taken now in `active`; the decision on it enters the flight.

        actions: (n, *shape), or chunks (n, chunk, *shape) with `starts` (n, chunk), in ticks after
            the capture, the first of them 0, NEVER for elements that a shorter chunk lacks
        """
        ids: Any = slice(None)
        if active is not None and np.count_nonzero(active) < self.n:
            ids = np.flatnonzero(active)
        slot: Any = 0
        number = self._number[ids, 0]
        if self._number.shape[1] > 1:
            ids = np.arange(self.n)[ids]
            slot = np.where(self._number[ids] < 0, -1, self._number[ids]).argmin(axis=1)
            number = self._number[ids, slot]
        # With room for all that can be under way, only one that was lost can be in the way.
        if np.count_nonzero(number >= 0):
            self.stale[ids] += (number >= 0) & (self._arrival[ids, slot] < NEVER)
        arrival = self.now + latency
        if lost is not None:
            arrival = np.where(lost, NEVER, arrival)
        self._number[ids, slot] = self.captures[ids]
        self._arrival[ids, slot] = arrival[ids]
        if starts is None:
            self._starts[ids, slot] = NEVER
            self._starts[ids, slot, 0] = self.now[ids]
            self._actions[ids, slot, 0] = actions[ids]
        else:
            meant = np.where(starts[ids] >= NEVER, NEVER, self.now[ids, None] + starts[ids])
            self._starts[ids, slot] = meant
            self._actions[ids, slot] = actions[ids]
        self.captures[ids] += 1
        if self.holds:
            self._to_rest[ids] = True
            self.in_force[ids], self.action[ids], self._force_starts[ids] = -1, 0, NEVER

    def period(self, plant: Plant, ticks: Ticks, running: Mask | None = None) -> Ticks:
        """From this capture to the next, `ticks` later; how long it was, in each environment.

        Where ticks is NEVER the period lasts until the plant is at rest, after its switch.
        """
        began = self.now.copy()
        end = began + ticks
        if running is not None and np.count_nonzero(running) < self.n:
            end = np.where(running, end, began)
        until_rest = np.count_nonzero(end >= NEVER) > 0
        if np.count_nonzero(self._to_rest):
            plant.switch(self._to_rest.copy(), self.action)
            self._to_rest[:] = False
        while True:
            switching = self._arrive()
            if switching is not None:
                plant.switch(switching, self.action)
            if until_rest:
                resting = (end >= NEVER) & self.newest_in_force & plant.at_rest()
                end[resting] = self.now[resting]
            under_way = end > self.now
            count = np.count_nonzero(under_way)
            if not count:
                return self.now - began
            ahead = np.minimum(self._next_event(), end) - self.now
            nearest = ahead if count == self.n else ahead[under_way]
            passed = plant.advance(under_way, int(nearest.min()), ahead)
            self.now[under_way] += passed

    def _arrive(self) -> Mask | None:
        """Let what has arrived come into force, and chunks go on; who follows a new action."""
        arrived = self._arrival <= self.now[:, None]
        has_chunks = self._force_starts.shape[1] > 1
        if not has_chunks and not np.count_nonzero(arrived):
            return None
        found = arrived[:, 0] if arrived.shape[1] == 1 else np.asarray(arrived.any(axis=1))
        ids: Any = slice(None) if np.count_nonzero(found) == self.n else np.flatnonzero(found)
        self._come_into_force(ids, arrived)
        if has_chunks:
            found = found | (self._force_starts[:, 1:] == self.now[:, None]).any(axis=1)
            ids = np.flatnonzero(found)
            due = (self._force_starts[ids] <= self.now[ids, None]).sum(axis=1) - 1
            self.action[ids] = self._force_actions[ids, due]
        return found if np.count_nonzero(found) else None

    def _come_into_force(self, ids: Any, arrived: Mask) -> None:
        """In environments `ids`, the newest of what has arrived; older decisions are stale."""
        slot: Any = 0
        if arrived.shape[1] > 1:
            ids = np.arange(self.n)[ids]
            slot = np.where(arrived[ids], self._number[ids], -1).argmax(axis=1)
        newest = self._number[ids, slot]
        self.in_force[ids] = newest
        self.latency[ids] = self._arrival[ids, slot] - self._starts[ids, slot, 0]
        self._force_starts[ids] = self._starts[ids, slot]
        self._force_actions[ids] = self._actions[ids, slot]
        self.action[ids] = self._force_actions[ids, 0]
        if arrived.shape[1] > 1:
            older = (self._number[ids] >= 0) & (self._number[ids] < newest[:, None])
            self.stale[ids] += (older & (self._arrival[ids] < NEVER)).sum(axis=1)
            self._number[ids] = np.where(older, -1, self._number[ids])
            self._arrival[ids] = np.where(older, NEVER, self._arrival[ids])
        self._number[ids, slot], self._arrival[ids, slot] = -1, NEVER

    def _next_event(self) -> Ticks:
        """When the next decision arrives, or the next element of a chunk is due."""
        arrival: Ticks = self._arrival[:, 0]
        if self._arrival.shape[1] > 1:
            arrival = self._arrival.min(axis=1)
        if self._force_starts.shape[1] == 1:
            return arrival
        following = np.where(self._force_starts > self.now[:, None], self._force_starts, NEVER)
        return np.minimum(arrival, following.min(axis=1))
