"""The watchdog: on the robot's side, it moves only while fresh decisions come.

A decision is fresh if it is newer than all before, and was made on an observation that is not
older than the watchdog's patience. A command that repeats one, such as the next action of a chunk,
may move the robot but is no sign of life; one that is no decision moves nothing, and is none
either. After a fault the robot stays stopped until it is armed, which it can be only at rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from midstride.realtime.robot import Stamp, State
from midstride.seconds import check_time_s, format_s

_AHEAD_S = 1e-3  # that a capture may seem to lie in the future


class Watchdog:
    """Whether the robot may move; pure bookkeeping, told the time by its caller.

    patience_s: it stops if no fresh command came for so long; None: it waits for ever
    on_fault: is told of every fault
    """

    def __init__(
        self, patience_s: float | None, on_fault: Callable[[str], None] = lambda fault: None
    ) -> None:
        if patience_s is not None and check_time_s(patience_s, "the watchdog's time") == 0:
            raise ValueError("the watchdog's time must be longer than 0 s")
        self.patience_s, self.on_fault = patience_s, on_fault
        self.state: State = "idle"
        self.fault: str | None = None
        self.faults = 0
        self._fresh_s = -math.inf
        self._newest = -1

    def arm(self, now_s: float) -> None:
        """Let it move; decisions are counted anew, and so is the time without one."""
        if self.state == "stopping":
            raise ValueError("the robot is still stopping: arm it when it is at rest")
        if self.state == "armed" and self.patience_s is not None:
            raise ValueError("the robot is armed already: stop it first")
        self.state, self.fault = "armed", None
        self._fresh_s, self._newest = now_s, -1

    def disarm(self) -> None:
        """Nobody runs it any more, and nothing is wrong."""
        if self.state == "armed":
            self.state = "stopping"

    def refuses(self, stamp: Stamp, now_s: float) -> str | None:
        """Why a command is not taken, or None; one that is taken may be fresh."""
        if self.state != "armed":
            return f"it is {self.state}" + (f": {self.fault}" if self.fault else "")
        if stamp.number < 0:  # no decision: it is to stay where it is
            return None
        if stamp.number < self._newest:
            return f"decision {stamp.number} is older than {self._newest}, which it has"
        age_s = now_s - stamp.captured_s
        if math.isnan(age_s) or age_s < -_AHEAD_S:
            return "its observation was captured in the future"
        if self.patience_s is not None and age_s > self.patience_s:
            return f"its observation is {format_s(age_s, 3)} old"
        if stamp.number > self._newest:
            self._newest, self._fresh_s = stamp.number, now_s
        return None

    def look(self, now_s: float) -> bool:
        """Whether the robot may go on moving at this instant."""
        if self.state == "armed" and self.patience_s is not None:
            silent_s = now_s - self._fresh_s
            if silent_s > self.patience_s * (1 + 1e-9):
                self.trip(f"no fresh command came for {format_s(self.patience_s)}")
        return self.state == "armed"

    def trip(self, fault: str) -> None:
        """Stop, and stay so; of several faults the first is told."""
        if self.state == "armed":
            self.faults += 1
            self.state, self.fault = "stopping", fault
            self.on_fault(fault)

    def rested(self) -> None:
        """It has come to rest."""
        if self.state == "stopping":
            self.state = "stopped"
