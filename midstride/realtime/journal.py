"""What became of every decision: the record of a run, written as it happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from midstride.realtime.robot import Sent
from midstride.realtime.thinker import Thought

Fate = Literal["pending", "in force", "stale", "lost", "refused"]
PARTS = ("observation_s", "inference_s", "command_s", "latency_s")


@dataclass(frozen=True)
class Decision:
    """One decision, on the clock of the runtime; None for what has not happened.

    due_s: when its observation should have been captured; captured_s: when it was
    seen_s: when the runtime had it; began_s, done_s: of the thinking
    sent_s: when the command left; taken_s: when the robot took it
    missed: cycles that were skipped before it
    """

    number: int
    due_s: float
    captured_s: float
    seen_s: float
    began_s: float | None = None
    done_s: float | None = None
    sent_s: float | None = None
    taken_s: float | None = None
    fate: Fate = "pending"
    missed: int = 0
    action: Any = None  # that was decided
    sent: Any = None  # that the robot was actually told

    @property
    def observation_s(self) -> float:
        """From the capture until the runtime had it."""
        return self.seen_s - self.captured_s

    @property
    def inference_s(self) -> float | None:
        """Until it was decided, from when the runtime had seen."""
        return None if self.done_s is None else self.done_s - self.seen_s

    @property
    def command_s(self) -> float | None:
        """Until the robot took it, from when it was decided."""
        return None if self.taken_s is None or self.done_s is None else self.taken_s - self.done_s

    @property
    def latency_s(self) -> float | None:
        """From the capture until it came into force: t_AS."""
        return None if self.taken_s is None else self.taken_s - self.captured_s

    @property
    def lateness_s(self) -> float:
        """Of the capture."""
        return self.captured_s - self.due_s


COLUMNS = (*(field.name for field in fields(Decision)), *PARTS)


class Journal:
    """Decisions of a run by number, and counts of what happened."""

    def __init__(self) -> None:
        self._open: dict[int, Decision] = {}
        self._settled: list[Decision] = []
        self.counts: Counter[str] = Counter()

    def captured(self, decision: Decision) -> None:
        self._open[decision.number] = decision
        self.counts["decisions"] += 1
        self.counts["missed"] += decision.missed

    def thought(self, thought: Thought, overtaken: bool) -> None:
        """A decision is known; whether a newer one is in force already."""
        fate: Fate = "lost" if thought.is_lost else "stale" if overtaken else "pending"
        self._change(
            thought.number,
            fate,
            began_s=thought.began_s,
            done_s=thought.done_s,
            action=thought.actions[0] if len(thought.actions) == 1 else thought.actions,
        )

    def commanded(self, number: int, sent_s: float, sent: Sent) -> None:
        """A decision came into force, or the robot refused it; older ones are overtaken."""
        if number not in self._open:  # a further action of a chunk
            return
        fate: Fate = "in force" if sent.refused is None else "refused"
        self._change(number, fate, sent_s=sent_s, taken_s=sent.taken_s, sent=sent.action)
        for other in [n for n, one in self._open.items() if n < number and one.done_s is not None]:
            self._change(other, "stale")

    def close(self) -> None:
        """The run is over: what is pending stays so."""
        for number in list(self._open):
            self._settled.append(self._open.pop(number))

    def settled(self) -> list[Decision]:
        """Decisions whose fate has become known since this was last asked."""
        found, self._settled = self._settled, []
        return found

    def _change(self, number: int, fate: Fate, **values: Any) -> None:
        decision = replace(self._open[number], fate=fate, **values)
        if fate == "pending":
            self._open[number] = decision
            return
        self.counts[fate] += 1
        self._settled.append(decision)
        del self._open[number]


def quantiles(decisions: list[Decision]) -> dict[str, tuple[float, float, float]]:
    """p50, p99 and the largest of each part of the latency, and of the lateness of captures."""
    found = {}
    for name in (*PARTS, "lateness_s"):
        values = [v for one in decisions if (v := getattr(one, name)) is not None]
        if values:
            p50, p99, most = np.quantile(values, (0.5, 0.99, 1.0))
            found[name] = float(p50), float(p99), float(most)
    return found
