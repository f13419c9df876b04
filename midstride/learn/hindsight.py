"""What was recorded in a frozen world, seen as data of a world with latency.

Physics depends on when actions switch, not on when observations were taken. In a world that freezes
for thought, action a_j is in force from j H to (j + 1) H. The same world with latency t_AS would
have captured the observation for a_j at j H - t_AS. With m = ceil(t_AS / H) that is inside of row
i = j - m, at m H - t_AS after its beginning, when

    a_i                          was in force,
    a_{i+1} ... a_{i+m-1}        were decided and pending, oldest first, and
    observation_next[i + m - 1]  is what will be observed at the switch.

So a record holds, for every latency, what an agent would have observed, and the state in which its
decision comes into force: what the decision should have been can be asked of the policy that acts
without latency. Whole steps need nothing but the record; others what was observed within steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.envs.actions import ActionCode
from midstride.knowledge import Layout
from midstride.learn.record import Record
from midstride.timing import Timing

Array = NDArray[Any]
_TOGETHER = 64  # steps of a record that get the latencies of one episode


@dataclass(frozen=True)
class Instants:
    """Captures of a world with latency, found in a record of one without.

    inputs: (n, columns) what is observed there, with what is known of what is in flight
    observation_switch: (n, base columns) what the environment observes at their switches
    rows: (n,) of the record, in which the captures lie
    """

    inputs: Array
    observation_switch: Array
    rows: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.rows)


def hindsight(
    record: Record,
    code: ActionCode,
    layout: Layout,
    period_ticks: int,
    latency_ticks: int,
    selection_time: float | Array = 0.0,
) -> Instants:
    """What an agent with a latency would have observed, wherever the record goes on to its switch.

    layout: the columns that it observes: the environment's own, and knowledge of what is in flight
    selection_time: as it reads there: a share, one for all or (steps,) one for each; 0 where
        nothing is in force yet, for nothing was measured
    """
    check_layout(layout)
    m = -(-latency_ticks // period_ticks)
    after = m * period_ticks - latency_ticks  # ticks from the beginning of the row to the capture
    last = max(m, 1) - 1  # rows from the one of the capture to the one that ends with the switch
    usable = record.left > last
    if m:
        usable &= ~record.terminated[np.minimum(np.arange(len(record)) + last, len(record) - 1)]
    rows = np.flatnonzero(usable)
    if not len(rows):
        raise ValueError(
            f"no episode of the record lasts the {m} steps of the latency (the longest has "
            f"{record.longest}): record longer ones, or adapt to a shorter latency"
        )
    slots = layout.pending_slots
    in_flight = _codes(record, code)
    base = record.observation if after == 0 else _within(record, after)
    dtype = base.dtype if base.dtype.kind == "f" else np.float32  # knowledge is no whole number
    inputs = np.zeros((len(rows), len(layout.columns)), dtype)
    at = layout.slices
    inputs[:, at["base"]] = base[rows]
    if "previous_action" in at:
        inputs[:, at["previous_action"]] = (
            in_flight[rows] if m else _before(record, in_flight)[rows]
        )
    if "pending_actions" in at:
        pending = np.zeros((len(rows), slots, len(layout.action)))
        for k in range(1, m):  # a_{i+k} was decided m - k captures ago
            pending[:, slots - (m - k)] = in_flight[rows + k]
        inputs[:, at["pending_actions"]] = pending.reshape(len(rows), -1)
    if "selection_time" in at:
        measured = np.where(_nothing(record, m), 0.0, selection_time)
        inputs[:, at["selection_time"]] = measured[rows, None]
    switch = record.observation_next[rows + last] if m else record.observation[rows]
    return Instants(inputs, switch, rows)


def mixed(
    record: Record, code: ActionCode, layout: Layout, timing: Timing, rng: np.random.Generator
) -> Instants:
    """Captures with the latencies that `timing` draws, one for each step of the record.

    Each is taken as if it were fixed. Where latencies vary from step to step, the one that is
    measured is of the decision in force, drawn some captures before.
    """
    low, high = timing.latency_bounds_ticks
    period = timing.shortest_period_ticks
    scale = max(timing.selection_scale_ticks, 1)
    if low == high:
        return hindsight(record, code, layout, period, high, min(1.0, high / scale))
    # As if an episode began again and again: there may be few of them, and each may have one
    # latency, or begin elsewhere in a trace.
    earlier = max(1, -(-high // period))
    begun = range(-(-len(record) // _TOGETHER))
    drawn = np.stack([timing.episode(rng)(earlier + _TOGETHER)[0] for _ in begun])

    def ago(captures: int) -> NDArray[np.int64]:
        """(steps,) the latencies of decisions so many captures before each."""
        first = earlier - captures
        return np.asarray(drawn[:, first : first + _TOGETHER].reshape(-1)[: len(record)])

    parts = []
    for ticks in np.unique(ago(0)).tolist():
        measured = ago(max(1, -(-ticks // period))) / scale
        found = hindsight(record, code, layout, period, ticks, np.minimum(measured, 1.0))
        chosen = ago(0)[found.rows] == ticks
        parts.append(
            Instants(found.inputs[chosen], found.observation_switch[chosen], found.rows[chosen])
        )
    return together(parts)


def together(parts: list[Instants]) -> Instants:
    """One after another."""
    return Instants(
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.observation_switch for part in parts]),
        np.concatenate([part.rows for part in parts]),
    )


def ticks_within(timing: Timing) -> tuple[int, ...]:
    """Ticks inside of steps at which latencies would have captured: what must be recorded."""
    period = timing.shortest_period_ticks
    low, high = timing.latency_bounds_ticks
    fixed = low == high
    latencies = range(low, high + 1) if not fixed else (high,)
    return tuple(sorted({-ticks % period for ticks in latencies} - {0}))


def check_layout(layout: Layout) -> None:
    """An error if it has columns that a record does not tell."""
    if "vector_to_go" in layout.features or layout.stack_observations or layout.stack_actions:
        raise ValueError(
            "a record tells previous_action, pending_actions and selection_time: leave out "
            "vector_to_go and stacking"
        )


def _codes(record: Record, code: ActionCode) -> Array:
    """Columns of the actions (n, size); zeros where nothing was in force."""
    codes = np.stack([code.of(action) for action in record.action])
    codes[record.held] = 0.0
    return codes


def _nothing(record: Record, m: int) -> NDArray[np.bool_]:
    """(n,) whether nothing is in force at the captures."""
    held = np.asarray(record.held)
    return held if m else (record.age == 0) | np.roll(held, 1)


def _before(record: Record, codes: Array) -> Array:
    """Columns of what was in force before each row; zeros where an episode begins."""
    found = np.roll(codes, 1, axis=0)
    found[record.age == 0] = 0.0
    return found


def _within(record: Record, ticks: int) -> Array:
    if ticks not in record.within:
        raise ValueError(
            f"the record does not hold what was observed {ticks} ticks into a step, which this "
            "latency needs: adapt to a latency of whole steps (a robot can wait for the next), or "
            "let steps be recorded here"
        )
    return record.within[ticks]
