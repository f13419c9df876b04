"""Hindsight latency: what was lived at one latency, as true transitions of another.

Physics depends on when actions switch, not on when observations were taken. Decision i of an
episode that was lived at latency l, with period H, came into force at T_i = i H + l. Had it been
made t seconds before, on the observation of T_i - t, the same would have happened: so

    (s(T_i - t), what was in flight then) -- a_i --> (s(T_i - t + H), what was in flight then)

with the reward in between is a transition of the world of latency t. In flight are the last
k = max(1, t / H, rounded up) decisions: a_{i-k} is in force, a_{i-k+1} ... a_{i-1} are pending.

When that is unbiased. With t <= l always. With t > l the decision may have been made on something
that happened after T_i - t: where chance is in it (noise in the dynamics, or in the sensors), a_i
knows more than an agent of latency t can. With deterministic dynamics there is nothing to know
(`theory/hindsight.py` shows both, exactly). The period cannot be changed in hindsight.

Ends of episodes. Decisions that were still to come when the episode ended are not in the record.
What happened until the end does not depend on them, so it is a true transition whatever they are:
they are drawn from other transitions, anew each time. Without these, no fall would ever be seen at
a latency of a period or more. Before the first decision nothing is in flight, as at a reset.

A capture that is moved by whole periods is one of the record. Another needs an environment that
tells what is observed inside of the period (`Hints.observe_within`: our own tasks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.knowledge import selection_time
from midstride.learn.lived import Plan
from midstride.learn.replay import DrawnReplay, Replay, Row

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Moved:
    """Where moved captures fall in windows of n x span steps; times in ticks."""

    rows: Numbers  # 0, 1, ..., n - 1
    latency: Numbers  # (n,) that is learned
    into: Numbers  # (n,) from the start of the step to the moved capture
    in_flight: Numbers  # (n,) k: the decision that is taken comes into force after so many others
    decision: Numbers  # (n,) its place in the window
    period: Numbers  # (n, span) that each step lasted
    decided: Mask  # (n, span) which came into force, in the same episode
    earlier: Mask  # (n, span) which are of an earlier episode
    over_now: Mask  # (n,) whether the episode ends in the step of the capture
    ended: Mask  # (n,) whether it ends before the next moved capture, or at it
    last: Numbers  # (n,) the place of the step in which it ends, or of the capture
    length: Numbers  # (n,) from capture to next capture
    arrived: Numbers  # (n,) 1 where another decision has come into force by then, else 0

    @classmethod
    def of(cls, plan: Plan, fields: dict[str, Any], latency: Numbers) -> Moved:
        now, period = plan.back, plan.period
        lasted = _whole(fields["period_s"], plan.tick_s)
        done = fields["terminated"] | fields["truncated"]
        before = np.cumsum(done, axis=1) - done
        together = before == before[:, now, None]
        lived = _lived(plan, fields, together)
        steps, into = np.divmod(lived - latency, period)
        over_now = done[:, now]
        inside = ~over_now & (into > 0) & done[:, now + 1] & (lasted[:, now + 1] <= into)
        length = np.where(over_now, lasted[:, now] - into, period)
        length = np.where(inside, period - into + lasted[:, now + 1], length)
        in_flight = np.maximum(1, -(-latency // period))
        return cls(
            rows=np.arange(len(latency)),
            latency=latency,
            into=into,
            in_flight=in_flight,
            decision=now - steps,
            period=lasted,
            decided=together & (lasted >= lived[:, None]),
            earlier=~together & (np.arange(done.shape[1]) < now),
            over_now=over_now,
            ended=over_now | inside,
            last=np.where(inside, now + 1, now),
            length=length,
            arrived=(length >= latency - (in_flight - 1) * period).astype(np.int64),
        )

    @property
    def to_come(self) -> Mask:
        """(n, span) which had not come into force when the episode ended."""
        return ~self.decided & ~self.earlier


class Hindsight:
    """Draws transitions of all learned latencies from a replay of what was lived."""

    def __init__(self, plan: Plan, plain: Row) -> None:
        """plain: the row that a learner takes"""
        self.plan, self.plain = plan, plain
        self.row = plan.row(plain)
        self.span = plan.back + 1 + plan.ahead  # steps in a row that a transition is made from
        self._slices = plan.layout.slices
        self._instant = np.zeros(plan.period, np.intp)  # tick of the period -> its place
        self._instant[list(plan.instants)] = np.arange(len(plan.instants))

    @classmethod
    def of(cls, settings: Any, envs: LearnableEnvs, plain: Row) -> Hindsight | None:
        """Of an agent whose settings ask for it; the environments are told what to observe."""
        if settings.lived_at is None:
            return None
        found = cls(Plan.of(envs, settings.recorded_in is None), plain)
        found.tell(envs)
        return found

    def tell(self, envs: LearnableEnvs) -> None:
        """Have environments say what they observe where captures are moved to."""
        if self.plan.instants:
            assert envs.hints.observe_within is not None
            envs.hints.observe_within(self.plan.instants)

    def sample(
        self, replay: Replay, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> NDArray[np.float32]:
        """Random transitions (*shape, width) of latencies that are drawn evenly."""
        count = int(np.prod(shape))
        starts, envs = replay.rows(rng, count, self.span)
        steps = (starts[:, None] + np.arange(self.span)) % replay.length
        window = replay.take(steps, envs[:, None])
        latency = rng.choice(self.plan.learned, size=count)
        found, valid = self.relabel(window, latency, rng)
        if not valid.all():  # few, near the ends of episodes: others stand in for them
            if not valid.any():
                raise ValueError("no step in replay can be had at the latencies to be learned")
            found[~valid] = found[rng.choice(np.flatnonzero(valid), size=int((~valid).sum()))]
        return found.reshape(*shape, -1)

    def relabel(
        self, window: Array, latency: Numbers, rng: np.random.Generator
    ) -> tuple[Array, Mask]:
        """Transitions (n, width) whose captures are in one step of each window.

        window: (n, span, width) of rows in the order of time; the step is number `Plan.back`
        latency: (n,) in ticks, that each is to be a transition of
        Returns them, and which of them there are.
        """
        fields = self.row.unpack(window)
        moved = Moved.of(self.plan, fields, latency)
        action, code = self._decisions(window, fields, moved, rng)
        k, decision, arrived = moved.in_flight, moved.decision, moved.arrived
        later = np.where(k == 1, np.minimum(latency, moved.length), latency)
        observed = {
            "observation_capture": self._observe(
                moved, code, decision - k, decision - 1, k - 1, latency
            ),
            "observation_next": self._observe(
                moved, code, decision - k + arrived, decision, k - arrived, later
            ),
        }
        for name, (base, to_go) in self._seen(fields, moved).items():
            observed[name][:, self._slices["base"]] = base
            if self.plan.knows_to_go:
                observed[name][:, self._slices["vector_to_go"]] = to_go
        found = np.zeros((len(window), self.plain.width), np.float32)
        values = {
            **observed,
            "action": action[moved.rows, decision],
            "reward_before_switch": self._reward(fields, moved),
            "latency_s": latency * self.plan.tick_s,
            "period_s": moved.length * self.plan.tick_s,
            "terminated": moved.ended & fields["terminated"][moved.rows, moved.last],
            "truncated": moved.ended & fields["truncated"][moved.rows, moved.last],
        }
        for name, value in values.items():
            found[:, self.plain.places[name]] = value
        return found, self._valid(moved, values)

    def _decisions(
        self, window: Array, fields: dict[str, Any], moved: Moved, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Actions (n, span, ...) and their columns; of decisions to come, those of others."""
        action = window[..., self.row.places["action"]].copy()
        block = self._slices.get("previous_action", slice(0, 0))
        # In force at the next capture is what was decided in the step.
        code = fields["observation_next"][..., block].copy()
        code[moved.earlier] = 0
        known, unknown = np.nonzero(moved.decided), np.nonzero(moved.to_come)
        if len(known[0]) and len(unknown[0]):
            drawn = rng.integers(len(known[0]), size=len(unknown[0]))
            donors = known[0][drawn], known[1][drawn]
            action[unknown], code[unknown] = action[donors], code[donors]
        return action, code

    def _observe(
        self,
        moved: Moved,
        code: Array,
        in_force: Numbers,
        newest: Numbers,
        pending: Numbers,
        latency: Numbers,
    ) -> Array:
        """Observations (n, columns) but for what the environment itself observes.

        in_force, newest: places in the windows of the decision in force, and of the newest one
        pending: how many are; latency: the latest that was measured
        """
        layout, rows, span = self.plan.layout, moved.rows, self.span
        found = np.zeros((len(rows), len(layout.columns)), np.float32)
        if "previous_action" in self._slices:
            found[:, self._slices["previous_action"]] = code[rows, in_force]
        if "pending_actions" in self._slices:
            columns, size = self._slices["pending_actions"], len(layout.action)
            for age in range(1, min(layout.pending_slots, int(pending.max())) + 1):
                there = (pending >= age)[:, None]
                first = columns.stop - age * size
                place = np.clip(newest + 1 - age, 0, span - 1)
                found[:, first : first + size] = np.where(there, code[rows, place], 0)
        if "selection_time" in self._slices:
            measured = np.where(moved.earlier[rows, in_force], 0, latency) * self.plan.tick_s
            scaled = selection_time(measured, self.plan.scale * self.plan.tick_s)
            found[:, self._slices["selection_time"]] = scaled[:, None]
        return found

    def _seen(self, fields: dict[str, Any], moved: Moved) -> dict[str, tuple[Any, Any]]:
        """What the environment observes, and vector-to-go, at both captures."""
        rows, now, base = moved.rows, self.plan.back, self._slices["base"]
        own, following = fields["observation_capture"][:, now], fields["observation_next"]
        following = following[rows, moved.last]
        inside = (moved.into > 0)[:, None]
        goes_on = inside & ~moved.ended[:, None]
        here, there = self._within(fields, moved, now), self._within(fields, moved, now + 1)
        size = base.stop
        base_capture = np.where(inside, here[:, :size], own[:, base])
        base_next = np.where(goes_on, there[:, :size], following[:, base])
        to_go: list[Any] = [None, None]
        if self.plan.knows_to_go:
            # At a capture on a switch what has just come into force counts, but at latency 0.
            block, late = self._slices["vector_to_go"], (moved.latency > 0)[:, None]
            switch = fields["observation_switch"][..., block]
            at_once = np.where(late, switch[:, now], own[:, block])
            to_go[0] = np.where(inside, here[:, size:], at_once)
            on_switch = late & ~inside & ~moved.ended[:, None]
            at_once = np.where(on_switch, switch[:, now + 1], following[:, block])
            to_go[1] = np.where(goes_on, there[:, size:], at_once)
        return {
            "observation_capture": (base_capture, to_go[0]),
            "observation_next": (base_next, to_go[1]),
        }

    def _within(self, fields: dict[str, Any], moved: Moved, place: int) -> Any:
        """What was observed inside of a step at the moved instant, (n, columns)."""
        if not self.plan.instants:
            return np.zeros((len(moved.rows), self.row.within_columns), np.float32)
        parts = fields["observation_within"][:, place].reshape(len(moved.rows), self.row.within, -1)
        return parts[moved.rows, self._instant[moved.into]]

    def _reward(self, fields: dict[str, Any], moved: Moved) -> Any:
        """Earned from capture to next capture."""
        rows, now = moved.rows, self.plan.back
        each = fields["reward_before_switch"] + fields["reward_after_switch"]
        if not self.plan.instants:
            return each[:, now]
        until = fields["reward_within"][rows, :, self._instant[moved.into]]  # (n, span)
        until = np.where((moved.into > 0)[:, None], until, 0)
        rest = np.where(moved.last > now, each[:, now + 1], until[:, now + 1])
        return each[:, now] - until[:, now] + np.where(moved.over_now, 0, rest)

    def _valid(self, moved: Moved, values: dict[str, Any]) -> Mask:
        """Which captures there are, of which something was decided and what is in force known."""
        rows, now = moved.rows, self.plan.back
        there = ~(moved.over_now & (moved.into >= moved.period[:, now]))
        there &= ~moved.earlier[rows, moved.decision]
        if self.plan.knows_to_go:
            in_force = moved.decision - moved.in_flight + moved.arrived
            goes_on = moved.ended & ~values["terminated"]
            there &= ~(goes_on & moved.to_come[rows, in_force])
        return there


class HindsightReplay(DrawnReplay):
    """A replay that is sampled in hindsight."""

    def __init__(
        self, capacity: int, num_envs: int, hindsight: Hindsight, reward_scale: float = 1.0
    ) -> None:
        super().__init__(capacity, num_envs, hindsight.row, reward_scale=reward_scale)
        self.hindsight = hindsight

    @property
    def span(self) -> int:
        return self.hindsight.span

    def sample(self, rng: np.random.Generator, count: int) -> dict[str, Any]:
        return {"transitions": self.hindsight.sample(self, rng, (count,))}


class RelabelledReplay(HindsightReplay):
    """The same, by the names that QT-Opt has for what it observes."""

    def __init__(self, capacity: int, num_envs: int, hindsight: Hindsight) -> None:
        super().__init__(max(capacity, hindsight.span * num_envs), num_envs, hindsight)

    @property
    def fields(self) -> dict[str, Any]:
        """What was lived, field by field."""
        return self.row.unpack(self.data["transitions"])

    def sample(self, rng: np.random.Generator, count: int) -> dict[str, Any]:
        """Random transitions of the learned latencies; see `FrameReplay.sample`."""
        found = self.hindsight.plain.unpack(super().sample(rng, count)["transitions"])
        for instant in ("capture", "next"):
            found[f"state_{instant}"] = found.pop(f"observation_{instant}")
        return found


def _whole(times_s: Any, tick_s: float) -> Numbers:
    return np.rint(times_s / tick_s).astype(np.int64)


def _lived(plan: Plan, fields: dict[str, Any], together: Mask) -> Numbers:
    """The latencies (n,) that the steps were lived at.

    A step that the end of its episode cuts short tells of the part that was waited for.
    """
    now = plan.back
    if len(plan.lived) == 1:
        return np.full(len(together), plan.lived[0])
    told = _whole(fields["latency_s"], plan.tick_s)
    return np.where(together[:, now - 1], np.maximum(told[:, now - 1], told[:, now]), told[:, now])
