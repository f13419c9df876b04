"""The runtime: a robot as one more plant of the one clock.

`flight_of_one.py` is the rule, as in every simulation. Here a tick is a microsecond of a clock that
nobody stops: to advance is to wait, until the next deadline or until a thought is finished, and to
switch is to send a command. Deadlines are arithmetic: observation k is due at start + k * period. A
cycle that cannot be kept is skipped, and counted. Everything is stamped from the capture.

    concurrent  the robot goes on with what is in force while the policy thinks
    hold        the robot rests while the policy thinks, and the world goes on
    rest        the robot goes where it was told and comes to rest; then it is observed, and rests
                on while the policy thinks: blocking control of tasks with a motion controller
    blocking    the world waits while the policy thinks, as only a simulation can
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from midstride.flight import NEVER
from midstride.flight_of_one import FlightOfOne
from midstride.realtime.clock import Clock
from midstride.realtime.journal import Decision, Journal
from midstride.realtime.robot import STAY, Observation, Robot, RobotFault, Stamp
from midstride.realtime.senses import Senses
from midstride.realtime.thinker import Thinker
from midstride.seconds import check_time_s

Mode = Literal["concurrent", "hold", "rest", "blocking"]
TICK_S = 1e-6
_MOST_PENDING = 1024
_SILENCE_S = 1.0  # without a command, after which a robot without a watchdog is looked at again
_LOOK_AGAIN = 20_000  # ticks until a robot is asked again whether it has arrived


@runtime_checkable
class Pauses(Protocol):
    """A robot whose world can be made to wait."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@runtime_checkable
class Rests(Protocol):
    """A robot that says when it has arrived where it was told to go, and is at rest."""

    def is_at_rest(self) -> bool: ...


@dataclass(frozen=True)
class Pace:
    """When observations are taken.

    period_s: from one to the next, on the grid of deadlines; or
    execution_s: from a switch to the next one, as hold and blocking have it; or
    neither, in the mode rest: whenever the robot has arrived
    """

    mode: Mode = "concurrent"
    period_s: float | None = None
    execution_s: float | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be {', '.join(get_args(Mode))}, got {self.mode!r}")
        if self.mode == "rest":
            if self.period_s is not None or self.execution_s is not None:
                raise ValueError("in the mode rest a motion takes the time it takes: no period")
            return
        if (self.period_s is None) == (self.execution_s is None):
            raise ValueError("give either a period or an execution time, not both or neither")
        lasts_s = self.execution_s if self.period_s is None else self.period_s
        assert lasts_s is not None
        if check_time_s(lasts_s, "a period") < TICK_S:
            raise ValueError(f"a period must last at least a microsecond, got {lasts_s} s")
        if self.mode != "concurrent" and self.period_s is not None:
            object.__setattr__(self, "execution_s", self.period_s)
            object.__setattr__(self, "period_s", None)


@dataclass(frozen=True)
class Cycle:
    """One capture: what was measured, and what the policy was given."""

    number: int
    seen: Observation
    row: Any


class Enough(Exception):
    """Nobody wants the run to go on, while the policy still thinks."""


class Runtime:
    """Runs a policy on a robot. The robot is called from the thread that walks `cycles`.

    goes_on: is asked whenever no command came for as long as the robot's watchdog waits. A policy
        that hangs would otherwise keep a run from its end, and from seeing that the robot stopped
    """

    def __init__(
        self,
        robot: Robot,
        thinker: Thinker,
        senses: Senses,
        pace: Pace,
        clock: Clock,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> None:
        if pace.mode == "blocking" and not (robot.declared.pauses and isinstance(robot, Pauses)):
            raise ValueError(
                f"{robot.declared.name} cannot make the world wait while the policy thinks: "
                "choose the mode hold, in which the robot rests meanwhile, or concurrent"
            )
        arrives_s = robot.declared.arrives_s
        if pace.mode == "rest" and (arrives_s is None or not isinstance(robot, Rests)):
            raise ValueError(
                f"{robot.declared.name} does not say when it has arrived: choose the mode hold or "
                "concurrent"
            )
        self._robot, self._thinker, self._senses = robot, thinker, senses
        self._pace, self._clock, self._goes_on = pace, clock, goes_on
        self._silence_s = robot.declared.watchdog_s or _SILENCE_S
        self._heard_s = 0.0  # when the robot was last told or looked at
        self.flight = FlightOfOne(_MOST_PENDING)
        self.journal = Journal()
        self.starved = 0  # periods in which nothing new came into force
        self._start_s = 0.0
        self._decided: dict[int, tuple[Any, Any]] = {}  # as they fly; the latest
        self._switched = -1  # number of the decision that was sent last
        self._execution = 0
        self._given_up = NEVER  # when a decision that is lost would have arrived

    # --- The walk

    def warm_up(self) -> None:
        """The policy thinks of what the robot sees; nothing of it reaches the robot."""
        self._senses.begin(FlightOfOne(), TICK_S)
        self._thinker.warm_up(self._senses.row(self._robot.get_observation(), None))

    def cycles(self) -> Iterator[Cycle]:
        """From capture to capture, until the robot's episode is over or nobody asks any more."""
        pace, flight = self._pace, self.flight
        flight.reset()
        self._switched, self._given_up, self._decided = -1, NEVER, {}
        self._senses.begin(flight, TICK_S)
        self._start_s = self._heard_s = self._clock.now_s()
        index = missed = 0
        last_in_force = -1
        while True:
            seen = self._see()
            if seen.over:
                return
            yield self._capture(seen, index, missed)
            if pace.mode == "rest":
                self._live_until_at_rest()
                index, missed = index + 1, 0
            elif pace.period_s is None:
                assert pace.execution_s is not None
                self._live_until_executed(round(pace.execution_s / TICK_S))
                index, missed = index + 1, 0
            else:
                following = self._live_until_due(index, round(pace.period_s / TICK_S))
                missed, index = following - index - 1, following
            self.starved += flight.in_force == last_in_force
            last_in_force = flight.in_force

    def _see(self) -> Observation:
        seen = self._robot.get_observation()
        if seen.state != "armed" and not seen.over:
            raise RobotFault(f"the robot is {seen.state}: {seen.fault or 'it was not armed'}")
        return seen

    def _capture(self, seen: Observation, index: int, missed: int) -> Cycle:
        """An observation enters; the thinker is given what is known of it."""
        flight, now_s = self.flight, self._clock.now_s()
        flight.now = max(flight.now, self._ticks(now_s))
        # One that was captured before it was due was under way: what is late is never early.
        due_s = seen.captured_s
        if self._pace.period_s is not None:
            due_s = self._start_s + index * self._pace.period_s
        row = self._senses.row(seen, self._decided.get(flight.captures - 1))
        number = flight.begin(min(self._ticks(seen.captured_s), flight.now))
        self.journal.captured(Decision(number, due_s, seen.captured_s, now_s, missed=missed))
        if self._pace.mode == "hold":
            stays = self._robot.send_action(STAY, Stamp())
            if stays.refused is not None:
                raise RobotFault(
                    f"the robot does not rest while the policy thinks: {stays.refused}"
                )
        elif self._pace.mode == "blocking":
            self._world().pause()
        self._thinker.think(number, seen.captured_s, row)
        self._listen()
        return Cycle(number, seen, row)

    def _live_until_due(self, index: int, period: int) -> int:
        """To the next deadline at which the thinker is free; its index.

        Who wakes late looks late, but within the cycle that has begun by then.
        """
        flight = self.flight
        following = index + 1
        while True:
            flight.period(self, max(0, following * period - flight.now))
            # A command takes time too.
            flight.now = max(flight.now, self._ticks(self._clock.now_s()))
            following = max(following, flight.now // period)
            if self._thinker.is_free():
                return following
            following += 1

    def _live_until_executed(self, execution: int) -> None:
        """Until what was decided last has been in force for its time, or would have been."""
        self._execution = execution
        end = min(self._given_up + execution, NEVER)
        self.flight.period(self, max(0, end - self.flight.now))

    def _live_until_at_rest(self) -> None:
        """Until what was decided last is in force, and the robot has done it."""
        robot, flight = self._robot, self.flight
        assert isinstance(robot, Rests)
        while True:
            flight.period(self, _LOOK_AGAIN)
            if flight.newest_in_force and robot.is_at_rest():
                return

    # --- The plant

    def advance(self, ticks: int) -> int:
        """Wait, until then or until there is a thought; how long it was."""
        flight = self.flight
        until = flight.now + min(ticks, round(self._silence_s / TICK_S))
        self._clock.sleep_until(self._start_s + until * TICK_S, self._thinker.wake)
        now_s = self._clock.now_s()
        passed = max(0, self._ticks(now_s) - flight.now)
        self._listen()
        if now_s - self._heard_s > self._silence_s:
            self._heard_s = now_s
            self._see()
            if not self._goes_on():
                raise Enough
        return passed

    def switch(self, decision: tuple[Any, Any]) -> None:
        """Send it; what is known of it from now on is what was actually sent, and when."""
        flight, action, number = self.flight, decision[0], self.flight.in_force
        if self._pace.mode == "blocking":
            self._world().resume()
        sent_s = self._clock.now_s()
        sent = self._robot.send_action(
            action, Stamp(number, self._start_s + flight.captured * TICK_S)
        )
        self._heard_s = sent_s
        self.journal.commanded(number, sent_s, sent)
        if sent.refused is not None:
            raise RobotFault(f"the robot refused decision {number}: {sent.refused}")
        if sent.action is not action:
            flight.action = self._senses.of(sent.action)
        if number == self._switched:  # a further action of a chunk
            return
        self._switched = number
        taken = max(flight.now, self._ticks(sent.taken_s))
        flight.latency = 0 if self._pace.mode == "blocking" else taken - flight.captured
        if self._pace.execution_s is not None and flight.newest_in_force:
            flight.end = taken + self._execution

    def _listen(self) -> None:
        """Take in what was thought."""
        for thought in self._thinker.collect():
            due = self._ticks(thought.due_s)
            self._given_up = due if thought.is_lost else NEVER
            starts = [round(start_s / TICK_S) for start_s in thought.starts_s]
            flies = [self._senses.of(action) for action in thought.actions]
            if thought.number > max(self._decided, default=-1):  # thoughts may overtake
                self._decided = {thought.number: flies[0]}
            arrival = NEVER if thought.is_lost else due
            is_awaited = self.flight.tell(thought.number, arrival, flies, starts)
            self.journal.thought(thought, overtaken=not is_awaited)

    def _ticks(self, instant_s: float) -> int:
        return round((instant_s - self._start_s) / TICK_S)

    def _world(self) -> Pauses:
        assert isinstance(self._robot, Pauses)
        return self._robot
