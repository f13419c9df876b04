"""Who thinks: a policy in a thread of its own, or one whose latencies a simulation would draw.

A thinker is given observations and gives thoughts back: what was decided, and when it is due at the
robot. The runtime treats both alike.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from midstride.envs.actions import kept
from midstride.realtime.clock import Clock

WARM_UP = 3  # first thoughts, which may compile something, and never reach the robot


@dataclass(frozen=True)
class Thought:
    """What was decided on observation `number`.

    actions: one, or a chunk of them
    starts_s: for when each is meant, counted from the capture; the first of them 0
    due_s: when it comes into force, if it is not lost
    began_s, done_s: of the thinking
    """

    number: int
    actions: tuple[Any, ...]
    due_s: float
    began_s: float
    done_s: float
    starts_s: tuple[float, ...] = (0.0,)
    is_lost: bool = False


class Thinker(Protocol):
    wake: threading.Event  # set when there is a thought to collect

    def warm_up(self, observation: Any) -> None:
        """Think of it some times, and forget it."""
        ...

    def think(self, number: int, captured_s: float, observation: Any) -> None: ...

    def is_free(self) -> bool:
        """Whether a new observation would be thought of at once."""
        ...

    def collect(self) -> list[Thought]:
        """Thoughts that are new since it was last asked."""
        ...

    def close(self) -> None: ...


class ThreadThinker:
    """A policy that thinks in a thread of its own while the robot moves.

    workers: thoughts at a time; a policy that remembers its episode can have only one
    at_least: says of each decision how long after its capture it comes into force at the earliest.
        With the latency that the policy was trained with, and thoughts that are quicker, every
        latency is that one
    chunk: for policies that decide chunks: from what the policy gives to (actions, starts_s)
    """

    def __init__(
        self,
        policy: Any,
        clock: Clock,
        workers: int = 1,
        at_least: Callable[[], float] = lambda: 0.0,
        chunk: Callable[[Any], tuple[tuple[Any, ...], tuple[float, ...]]] | None = None,
    ) -> None:
        self._policy, self._clock, self._workers = policy, clock, workers
        self._at_least, self._chunk = at_least, chunk or _single
        self.wake = threading.Event()
        self._given: queue.SimpleQueue[tuple[int, float, Any] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Thought | BaseException] = queue.SimpleQueue()
        self._under_way = 0  # counted by who gives and collects, in one thread
        self._threads: list[threading.Thread] = []

    def warm_up(self, observation: Any) -> None:
        for _ in range(WARM_UP):
            self._policy(observation)
        self._policy.reset()

    def think(self, number: int, captured_s: float, observation: Any) -> None:
        while len(self._threads) < self._workers:
            thread = threading.Thread(target=self._work, name="thinker", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._under_way += 1
        earliest_s = captured_s + self._at_least()  # here, in the order of captures
        self._given.put((number, earliest_s, observation))

    def is_free(self) -> bool:
        return self._under_way < self._workers

    def collect(self) -> list[Thought]:
        self.wake.clear()
        found: list[Thought] = []
        while True:
            try:
                thought = self._done.get_nowait()
            except queue.Empty:
                return found
            self._under_way -= 1
            if isinstance(thought, BaseException):
                raise thought
            found.append(thought)

    def close(self) -> None:
        """A thought under way is not waited for: it cannot reach the robot any more."""
        for _ in self._threads:
            self._given.put(None)

    def _work(self) -> None:
        while (given := self._given.get()) is not None:
            number, earliest_s, observation = given
            began_s = self._clock.now_s()
            try:
                actions, starts_s = self._chunk(self._policy(observation))
                done_s = self._clock.now_s()
                due_s = max(done_s, earliest_s)
                self._done.put(Thought(number, actions, due_s, began_s, done_s, starts_s))
            except BaseException as error:  # raised where thoughts are collected
                self._done.put(error)
            self.wake.set()


class DrawnThinker:
    """A policy that takes no time to think, and whose decisions arrive when a simulation says.

    steps: latency and whether it is lost, of each decision (`Timing.episode`), in seconds
    is_serial: whether a new observation waits until the last thought is due
    """

    def __init__(
        self, policy: Any, clock: Clock, steps: Iterator[tuple[float, bool]], is_serial: bool
    ) -> None:
        self._policy, self._clock, self._steps = policy, clock, steps
        self._is_serial = is_serial
        self.wake = threading.Event()
        self._thoughts: list[Thought] = []
        self._busy_until_s = -float("inf")

    def warm_up(self, observation: Any) -> None:
        self._policy(observation)
        self._policy.reset()

    def think(self, number: int, captured_s: float, observation: Any) -> None:
        action = kept(self._policy(observation))
        latency_s, is_lost = next(self._steps)
        self._busy_until_s = captured_s + latency_s
        due_s = captured_s + latency_s
        thought = Thought(number, (action,), due_s, captured_s, captured_s, is_lost=is_lost)
        self._thoughts.append(thought)

    def is_free(self) -> bool:
        return not self._is_serial or self._clock.now_s() >= self._busy_until_s - 1e-9

    def collect(self) -> list[Thought]:
        found, self._thoughts = self._thoughts, []
        return found

    def close(self) -> None:
        pass


def _single(action: Any) -> tuple[tuple[Any, ...], tuple[float, ...]]:
    return (kept(action),), (0.0,)
