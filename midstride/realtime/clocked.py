"""A body on a clock that nobody stops, with a robot's verbs and a robot's safety.

Time is that of the clock. Whenever the robot is looked at, its body has lived through all ticks
that are over by then; so it is the same on the wall clock, where a server looks at every tick, as
on a virtual one, where tests do. Each tick asks the watchdog, and what the actuators are told is
the limiter's reference. A real arm cannot live through what is over: its reference waits where it
was, so that no stall of this process becomes a jump of the arm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midstride.realtime.bodies import Body
from midstride.realtime.clock import Clock
from midstride.realtime.limiter import Limiter
from midstride.realtime.recording import LONGEST_S, TURN_S, Moment
from midstride.realtime.robot import STAY, Array, Declared, Observation, Sent, Stamp
from midstride.realtime.watchdog import Watchdog

if TYPE_CHECKING:
    from midstride.sim.camera import Image

_ON_TIME = 1e-6  # share of a tick by which the clock may miss its end: float noise


@dataclass(frozen=True)
class Tick:
    """The robot's own record of one tick: what its actuators were told, under which decision.

    place: as it was planned, so that a plan that leaves the limits can be seen
    """

    at_s: float
    number: int
    state: str
    place: Array | None
    velocity: Array | None
    acceleration: Array | None


class ClockedRobot:
    """A body that moves by the clock.

    watchdog_s: it stops without a fresh command for so long; None: no watchdog, always armed
    limited: whether what the actuators are told is kept within the body's limits
    on_tick: is told of every tick
    """

    def __init__(
        self,
        body: Body,
        clock: Clock,
        watchdog_s: float | None = None,
        limited: bool = False,
        seed: int | None = None,
        on_tick: Callable[[Tick], None] | None = None,
    ) -> None:
        limits = body.declared.limits
        if limited and limits is None:
            raise ValueError(f"{body.declared.name} declares no limits to be kept within")
        self._body, self._clock, self._seed, self._on_tick = body, clock, seed, on_tick
        self.watchdog = Watchdog(watchdog_s)
        self._is_guarded = watchdog_s is not None
        self.limiter = Limiter(limits, body.tick_s, body.guide) if limited and limits else None
        self._declared = replace(
            body.declared, limits=limits if limited else None, watchdog_s=watchdog_s
        )
        self._start_s = 0.0
        self._ticks = 0
        self._paused_s: float | None = None
        self._number = -1
        self._target: Array | None = None
        self._turn = max(1, round(TURN_S / body.tick_s))
        self._remembered: deque[tuple[Moment, Any]] = deque(maxlen=round(LONGEST_S / TURN_S))

    @property
    def declared(self) -> Declared:
        return self._declared

    # --- The verbs

    def connect(self) -> None:
        """An episode begins now, at rest."""
        self._body.begin(self._seed)
        self._start_s, self._ticks, self._paused_s = self._clock.now_s(), 0, None
        self._number = -1
        self._remembered.clear()
        self._target = self._body.glance().position
        if self.limiter is not None and self._target is not None:
            self.limiter.place(self._target)
        if not self._is_guarded:
            self.watchdog.arm(self._start_s)  # always armed

    def reset(self, seed: int | None) -> None:
        """A new episode; not while it is run."""
        self.catch_up()
        if self.watchdog.state in ("armed", "stopping"):
            raise ValueError(f"the robot is {self.watchdog.state}: stop it before it is reset")
        self._seed = seed
        self.connect()

    def arm(self) -> None:
        """From rest alone: who is armed while it moves would be placed, or kept alive, anew."""
        self.catch_up()
        if self.watchdog.state in ("idle", "stopped") and not self._body.catches_up:
            self._find()
        self.watchdog.arm(self._clock.now_s())
        self._number = -1
        self._remembered.clear()
        if self.limiter is not None:
            self._target = self.limiter.aim(self.limiter.position)

    def _find(self) -> None:
        """A real arm may have been moved by hand since: its reference begins where it is."""
        where, limiter = self._body.measure().position, self.limiter
        if limiter is None or where is None:
            return
        limits = limiter.limits
        if (where < limits.low).any() or (where > limits.high).any():
            raise ValueError(
                f"the robot is at {where.round(3).tolist()}, outside of its limits: bring it "
                "within them by hand before it is armed"
            )
        limiter.place(where)

    def get_observation(self) -> Observation:
        self.catch_up()
        values, position, over, score = self._body.measure()
        at_s = self._at_s(self._ticks)
        state, fault = self.watchdog.state, self.watchdog.fault
        target = None if self._target is None else self._target.copy()
        return Observation(values, at_s, position, target, state, fault, over, score)

    def send_action(self, action: Any, stamp: Stamp) -> Sent:
        """What cannot be an action is a fault; what is old or unasked for is refused."""
        self.catch_up()
        now_s = self._clock.now_s()
        stays = action is STAY or stamp.number < 0
        try:
            action = None if stays else self._body.check(action)
        except ValueError as error:
            self.watchdog.trip(str(error))
            return Sent(None, now_s, str(error))
        refused = self.watchdog.refuses(stamp, now_s)
        if refused is not None:
            return Sent(None, now_s, refused)
        self._number = stamp.number
        if stays:
            self._stay()
        else:
            self._take(action)
        if stamp.number >= 0:
            self._remember(now_s, is_switch=True)
        return Sent(action, now_s)

    def stop(self) -> None:
        """A world that waits goes on, or it would never come to rest."""
        self.resume()
        self.catch_up()
        self.watchdog.disarm()

    def disconnect(self) -> None:
        self.stop()

    def pause(self) -> None:
        """The world waits from now on."""
        if not self._declared.pauses:
            raise ValueError(f"the world of {self._declared.name} cannot be made to wait")
        self.catch_up()
        if self._paused_s is None:
            self._paused_s = self._clock.now_s()

    def resume(self) -> None:
        if self._paused_s is not None:
            self._start_s += self._clock.now_s() - self._paused_s
            self._paused_s = None

    def score(self) -> float:
        """Of its episode so far."""
        return self._body.glance().score

    def is_at_rest(self) -> bool:
        self.catch_up()
        return self._body.is_at_rest()

    # --- What was

    def recall(self) -> list[Moment]:
        self._check_over()
        return [moment for moment, _ in self._remembered]

    def picture(self, index: int) -> Image:
        self._check_over()
        if not 0 <= index < len(self._remembered):
            raise ValueError(f"there are {len(self._remembered)} moments, and none is {index}")
        return self._body.picture(self._remembered[index][1])

    def _check_over(self) -> None:
        self.catch_up()
        if self.watchdog.state in ("armed", "stopping") and self._is_guarded:
            raise ValueError(f"the robot is {self.watchdog.state}: it recalls what is over")

    def _remember(self, at_s: float, is_switch: bool) -> None:
        if not self._declared.recalls or self.watchdog.state not in ("armed", "stopping"):
            return
        place, score, snapshot = self._body.glance()
        state, number = self.watchdog.state, self._number
        moment = Moment(at_s, number, is_switch, state, place, self._target, score)
        self._remembered.append((moment, snapshot))

    # --- Time

    def catch_up(self) -> int:
        """Live through the ticks that are over by now; how many they were."""
        now_s = self._clock.now_s() if self._paused_s is None else self._paused_s
        due = int((now_s - self._start_s) / self._body.tick_s + _ON_TIME)
        lived = due - self._ticks
        if lived > 1 and not self._body.catches_up:  # nobody moved it in the ticks that were missed
            self._start_s += (lived - 1) * self._body.tick_s
            due = self._ticks + 1
        while self._ticks < due:
            self._tick()
        return lived

    def next_tick_s(self) -> float:
        """When the tick under way is over; of a world that waits, when to look again."""
        if self._paused_s is not None:
            return self._clock.now_s() + self._body.tick_s
        return self._at_s(self._ticks + 1)

    def _tick(self) -> None:
        at_s = self._at_s(self._ticks)
        if self._ticks % self._turn == 0:
            self._remember(at_s, is_switch=False)
        may_move = self.watchdog.look(at_s)
        limiter = self.limiter
        # Idle or stopped it is told nothing: it may be moved by hand.
        if limiter is not None and self.watchdog.state in ("armed", "stopping"):
            if not may_move:
                limiter.brake()
            self._body.follow(None, limiter.step())
            if self.watchdog.state == "stopping" and limiter.is_at_rest:
                self._target = limiter.position
                self.watchdog.rested()
        elif limiter is None and not may_move:
            self._rest()
        self._body.tick()
        self._ticks += 1
        if self._on_tick is not None:
            self._on_tick(self._record(at_s))

    def _take(self, action: Any) -> None:
        """A command comes into force now."""
        place = self._body.target(action)
        if self.limiter is not None:
            assert place is not None
            self._target = self.limiter.aim(place)
        else:
            self._target = place
            self._body.follow(action, place)

    def _stay(self) -> None:
        """At the place that the actuators are told now; without a limiter, where it is."""
        if self.limiter is not None:
            self._target = self.limiter.aim(self.limiter.position)
        else:
            self._target = self._body.rest()

    def _rest(self) -> None:
        """Without a limiter, a stop is at once."""
        if self.watchdog.state == "stopping":
            self._stay()
            self.watchdog.rested()

    def _record(self, at_s: float) -> Tick:
        limiter, state = self.limiter, self.watchdog.state
        if limiter is None:
            return Tick(at_s, self._number, state, self._target, None, None)
        at = limiter.planned, limiter.velocity, limiter.acceleration
        return Tick(at_s, self._number, state, *at)

    def _at_s(self, tick: int) -> float:
        return self._start_s + tick * self._body.tick_s
