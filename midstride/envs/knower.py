"""What one environment's agent observes: the environment's columns, then what is known of flight.

`Layout.assemble` for a single environment: arrays of one row would cost more than the physics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.envs.actions import ActionCode
from midstride.flight_of_one import FlightOfOne
from midstride.knowledge import Layout

Array = NDArray[np.float64]
Row = NDArray[np.floating]


class Knower:
    """Writes rows of observation columns.

    The decisions in its flight are pairs: what moves the plant, and the columns of the action.
    """

    def __init__(self, layout: Layout, code: ActionCode, flight: FlightOfOne, high: int) -> None:
        """high: the latency that selection time shows as 1, in ticks"""
        self.code = code
        self._layout, self._flight = layout, flight
        self._high = high
        self._width = len(layout.columns)
        self._slices = slices = layout.slices
        self._base = slices["base"]
        self._previous = slices.get("previous_action")
        self._pending = slices.get("pending_actions")
        selection = slices.get("selection_time")
        self._selection = None if selection is None else selection.start
        self._to_go = slices.get("vector_to_go")
        self._stacks = "past_observations" in slices or "past_actions" in slices
        self._last: Row | None = None  # the row before, where something of it is stacked

    def first(self, observation: Any, to_go: Row | None = None) -> Row:
        """At a reset: nothing is in flight, and past observations repeat the first."""
        base = _as_row(observation)
        row = np.zeros(self._width, base.dtype)
        row[self._base] = base
        if to_go is not None:
            row[self._to_go] = to_go
        past = self._slices.get("past_observations")
        if past is not None:
            row[past] = np.tile(base, self._layout.stack_observations)
        self._last = row.copy() if self._stacks else None
        return row

    def next(self, observation: Any, decided: Array, to_go: Row | None = None) -> Row:
        """At a capture.

        decided: columns of the action that was chosen at the capture before
        """
        base, flight = _as_row(observation), self._flight
        row = np.empty(self._width, base.dtype)
        row[self._base] = base
        if self._previous is not None:
            row[self._previous] = 0.0 if flight.in_force < 0 else flight.action[1]
        if self._pending is not None:
            self._write_pending(row[self._pending])
        if self._selection is not None:
            row[self._selection] = min(1.0, flight.latency / self._high) if self._high else 0.0
        if to_go is not None:
            row[self._to_go] = to_go
        if self._last is not None:
            self._stack(row, decided)
            self._last = row.copy()
        return row

    def at(self, row: Row, observation: Any, to_go: Row | None) -> Row:
        """The row, with what was observed at another instant of the same period."""
        found = row.copy()
        found[self._base] = observation
        if to_go is not None:
            found[self._to_go] = to_go
        return found

    def _write_pending(self, columns: Row) -> None:
        size = len(self._layout.action)
        for k, decision in enumerate(self._flight.pending(self._layout.pending_slots)):
            columns[k * size : (k + 1) * size] = 0.0 if decision is None else decision[1]

    def _stack(self, row: Row, decided: Array) -> None:
        """Past observations and actions, newest first: those of the row before, and one more."""
        assert self._last is not None
        for name, newest in (
            ("past_observations", self._last[self._base]),
            ("past_actions", decided),
        ):
            where = self._slices.get(name)
            if where is not None:
                size = len(newest)
                row[where][:size] = newest
                row[where][size:] = self._last[where][:-size]


def widened_space(own: Any, layout: Layout, code: ActionCode) -> spaces.Box:
    """The space of an environment's observation, a Box, and what is known."""
    low, high = layout.bounds(own.low.astype(float), own.high.astype(float), code.low, code.high)
    dtype = own.dtype if own.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype.type)


def base_columns(space: Any) -> tuple[str, ...]:
    """Names for the environment's own columns; none if it does not observe a flat Box."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return tuple(f"observation:{i}" for i in range(space.shape[0]))
    return ()


def check_fits(layout: Layout, observation_space: Any, action_space: Any) -> None:
    """An error if knowledge or stacking is asked for that these spaces have no columns for."""
    if not (layout.features or layout.stack_observations or layout.stack_actions):
        return
    if not layout.base:
        raise ValueError(
            "knowledge and stacking need an environment that observes a flat Box, not "
            f"{observation_space}"
        )
    if not layout.action:
        raise ValueError(f"knowledge and stacking need discrete or Box actions, not {action_space}")


def _as_row(observation: Any) -> Row:
    row = np.asarray(observation)
    return row if row.dtype.kind == "f" else row.astype(np.float32)
