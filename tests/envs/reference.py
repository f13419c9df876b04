"""Concurrent control tick by tick, by the words of the rule, with a plain list of decisions."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Decision:
    number: int
    arrival: float
    latency: int
    action: Any


@dataclass
class Reference:
    """What is in force at every tick of one environment; knows nothing of periods or plants."""

    decisions: list = field(default_factory=list)  # pending, lost ones too
    in_force: Decision | None = None
    made: int = 0
    stale: int = 0

    def decide(self, tick, action, latency, lost):
        arrival = float("inf") if lost else tick + latency
        self.decisions.append(Decision(self.made, arrival, latency, action))
        self.made += 1

    def at(self, tick):
        """Let what has arrived by `tick` come into force; who is followed then (None: nobody)."""
        arrived = [d for d in self.decisions if d.arrival <= tick]
        if arrived:
            self.in_force = max(arrived, key=lambda d: d.number)
            older = [d for d in self.decisions if d.number < self.in_force.number]
            self.stale += len([d for d in older if d.arrival < float("inf")])
            self.decisions = [d for d in self.decisions if d.number > self.in_force.number]
        return self.in_force

    def pending(self, slots):
        """One for each of the last `slots` decisions, oldest first; None if it is not pending."""
        by_number = {d.number: d.action for d in self.decisions}
        return [by_number.get(k) for k in range(self.made - slots, self.made)]
