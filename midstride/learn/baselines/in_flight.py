"""The columns of an observation that say what is in flight, for agents that replace it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.latency import loses
from midstride.learn.replay import Replay

Mask = NDArray[np.bool_]


def whole_periods(envs: LearnableEnvs) -> int | None:
    """How many periods a decision is under way; None if that varies, or is not a whole number."""
    timing = envs.timing
    low, high = timing.latency_bounds_ticks
    periods, rest = divmod(high, timing.shortest_period_ticks)
    longest = round(timing.longest_period_s / timing.tick_s)
    if low != high or rest or loses(timing.latency) or longest != timing.shortest_period_ticks:
        return None
    return periods


def check_replaceable(agent: str, envs: LearnableEnvs) -> None:
    """An error unless what is in flight is known, and by columns that can be written anew."""
    layout = envs.layout
    wanted = ("previous_action", "pending_actions") if layout.pending_slots else (
        "previous_action",
    )  # fmt: skip
    if not set(wanted) <= set(layout.features):
        raise ValueError(f"{agent} values what is in flight: give --knowledge {' '.join(wanted)}")
    if "vector_to_go" in layout.features or layout.stack_actions:
        raise ValueError(
            f"{agent} learns as if it had decided otherwise, and vector_to_go and stacked actions "
            f"tell what was decided: leave them out, and give --knowledge {' '.join(wanted)}"
        )


class InFlight:
    """Where an observation says what is in flight: in force first, then pending, oldest first."""

    def __init__(self, envs: LearnableEnvs, size: int) -> None:
        """size: columns of an action"""
        slices = envs.layout.slices
        last = slices.get("pending_actions", slices["previous_action"])
        self.columns, self.size = slice(slices["previous_action"].start, last.stop), size

    def replaced(self, x: Array, newest: list[Array], normal: Any) -> Array:
        """Observations (n, columns), normalised, with other actions decided last.

        newest: actions (n, size) in [-1, 1], the newest last
        """
        columns = slice(self.columns.stop - len(newest) * self.size, self.columns.stop)
        actions = normal(jnp.concatenate(newest, axis=-1), columns)
        return x.at[:, columns].set(actions)


def draw_windows(
    replay: Replay, rng: np.random.Generator, shape: tuple[int, ...], span: int, valid: Any
) -> NDArray[np.float32]:
    """Random steps in a row, (*shape, span, width).

    valid: which of windows (n, span, width) can be learned from; others stand in for the rest
    """
    starts, envs = replay.rows(rng, int(np.prod(shape)), span)
    steps = (starts[:, None] + np.arange(span)) % replay.length
    found = replay.take(steps, envs[:, None])
    good: Mask = valid(found)
    if not good.all():
        if not good.any():
            raise ValueError(f"no {span} steps in replay follow each other in one episode")
        found[~good] = found[rng.choice(np.flatnonzero(good), size=int((~good).sum()))]
    return found.reshape(*shape, span, -1)
