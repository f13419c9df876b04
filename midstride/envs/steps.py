"""A period of an environment that is only known by its steps: they are the ticks."""

from __future__ import annotations

from typing import Any, cast

import gymnasium

from midstride.envs.actions import check_finite, kept
from midstride.flight_of_one import FlightOfOne

# What came of the time from one capture to the next: the last observation; reward, and the part of
# it before the switch to this decision; terminated, truncated; info of the last step; ticks.
Lived = tuple[Any, Any, Any, bool, bool, dict[str, Any], int]


class WholeSteps:
    """Periods of an environment whose own steps are the ticks: the plant, and the walk over it.

    Each step gets the action in force; before the first decision arrives, `hold`.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], flight: FlightOfOne, hold: Any, look: bool
    ) -> None:
        """look: whether the observation at the switch is kept"""
        self._env, self._flight, self._hold, self._look = env, flight, hold, look
        self._action: Any = hold
        self._lived: Lived | None = None
        self._observation: Any = None
        self.at_switch: tuple[Any, None] | None = None  # what is observed at the switch, if asked
        self.switches: list[tuple[int, Any]] = []  # of this period: decision, what is observed
        self._within: tuple[int, ...] = ()  # ticks of a period to look at
        self.within: dict[int, Any] = {}  # what was observed there
        self._over = False

    def look_within(self, ticks: tuple[int, ...]) -> None:
        """Observe so many ticks after each capture, too."""
        self._within = ticks

    def begin(self, observation: Any) -> None:
        """An episode has begun: nothing is in flight."""
        self._action, self._observation = self._hold, observation

    def rest(self) -> None:
        """A robot that holds: `hold` pre-empts what was in force."""
        self._action = self._hold

    def live(self, action: Any, code: Any, latency: int, interval: int, lost: bool) -> Lived:
        """From this capture to the next, `interval` ticks later, or to the end of the episode."""
        check_finite(action)
        self._lived, self.at_switch, self._over = None, None, False
        self.switches, self.within = [], {}
        self._flight.decide(self, (kept(action), code), latency, interval, lost)
        lived = cast(Lived, self._lived)
        if self._look and self.at_switch is None and self._over:
            self.at_switch = lived[0], None  # the end stands for a late switch
        return lived

    def advance(self, ticks: int) -> int:
        """An episode that ends within them ends there, and the period with it."""
        early = not self._flight.newest_in_force
        for passed in range(1, ticks + 1):
            observation, reward, terminated, truncated, info = self._env.step(self._action)
            before: Any = reward if early else 0.0
            if self._lived is None:
                self._lived = observation, reward, before, terminated, truncated, info, 1
            else:
                _, total, sooner, _, _, _, lived = self._lived
                total, before = total + reward, sooner + before
                self._lived = observation, total, before, terminated, truncated, info, lived + 1
            if self._lived[-1] in self._within:
                self.within[self._lived[-1]] = kept(observation)
            self._observation, self._over = observation, bool(terminated or truncated)
            if self._over:
                self._flight.end = self._flight.now + passed
                return passed
        return ticks

    def switch(self, decision: tuple[Any, Any]) -> None:
        self._action = decision[0]
        if not self._look:
            return
        seen = kept(self._observation)  # the environment may write the next one into it
        self.switches.append((self._flight.in_force, seen))
        if self.at_switch is None and self._flight.newest_in_force:
            self.at_switch = seen, None
