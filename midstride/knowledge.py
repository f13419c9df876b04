"""Concurrent knowledge: what an agent may know about the action that is still in flight.

Each feature is a pure function of batched arrays (first axis: environments). `Layout` says which
columns of the flat observation each one fills, and puts an observation together:

    base | previous_action | pending_actions | selection_time | vector_to_go
         | past observations | past actions

Pending actions are those of the decisions made and not yet in force, one slot for each of the last
captures, oldest first. A decision that is not pending (in force, or dropped) leaves zeros.
Past observations and actions (frame stacking) come newest first and are independent of the
features. At reset nothing is in flight: previous and past actions are all zero (a one-hot code
without a one), selection time and vector-to-go are zero, past observations repeat the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEATURES = ("previous_action", "pending_actions", "selection_time", "vector_to_go")
MAX_STACK = 4

Array = NDArray[np.floating]


def one_hot(actions: NDArray[np.integer], count: int) -> NDArray[np.float32]:
    """(n,) discrete actions as (n, count) one-hot rows."""
    return np.eye(count, dtype=np.float32)[actions]


def selection_time(latency_s: Array, high_s: float) -> Array:
    """The latest measured latency (n,), scaled to [0, 1] by the longest that is expected."""
    return np.minimum(latency_s / high_s, 1.0) if high_s > 0 else np.zeros_like(latency_s)


def wrap_angle(angle: Array) -> Array:
    """An angle as its equal in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def vector_to_go(target: Array, position: Array, scale: Array, wraps: NDArray[np.bool_]) -> Array:
    """What is left of the action in flight, (n, dims), in units of the action scale.

    `target` was fixed when the action took over; `position` is measured at capture. Dimensions
    where `wraps` is set are angles, and go the short way round.
    """
    remaining = target - position
    return np.where(wraps, wrap_angle(remaining), remaining) / scale


@dataclass(frozen=True)
class Layout:
    """Which columns an observation has, and what each is called.

    base: names of the columns that the task itself observes
    action: names of the columns of an encoded action (one-hot or continuous)
    controlled: names of the position-controlled dimensions; None where there are none
    """

    base: tuple[str, ...]
    action: tuple[str, ...]
    controlled: tuple[str, ...] | None
    features: tuple[str, ...] = ()
    stack_observations: int = 0
    stack_actions: int = 0
    pending_slots: int = 0  # decisions that can be pending at a capture (`Timing.pending_slots`)
    # What numbers are in units of, for who puts observations together elsewhere (a robot).
    units: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", check_features(self.features))
        for name in ("stack_observations", "stack_actions"):
            depth = getattr(self, name)
            if isinstance(depth, bool) or not isinstance(depth, (int, np.integer)):
                raise ValueError(f"{name} must be a whole number, got {depth!r}")
            if not 0 <= depth <= MAX_STACK:
                raise ValueError(f"{name} must be from 0 to {MAX_STACK}, got {depth}")
        if "vector_to_go" in self.features and not self.controlled:
            raise ValueError(
                "vector_to_go needs position-controlled actuators, and this environment's are "
                "not: they have no target to go to; use previous_action and selection_time"
            )

    @cached_property
    def blocks(self) -> dict[str, tuple[str, ...]]:
        """Column names by block, in the order of the observation; empty blocks left out."""
        sources = {
            "previous_action": tuple(f"previous_action:{a}" for a in self.action),
            "pending_actions": tuple(
                f"pending_action:{ago}:{name}"
                for ago in range(self.pending_slots, 0, -1)
                for name in self.action
            ),
            "selection_time": ("selection_time",),
            "vector_to_go": tuple(f"vector_to_go:{c}" for c in self.controlled or ()),
        }
        blocks = {"base": self.base}
        blocks.update({name: sources[name] for name in FEATURES if name in self.features})
        ages = range(1, MAX_STACK + 1)
        blocks["past_observations"] = tuple(
            f"{name}@-{age}" for age in ages[: self.stack_observations] for name in self.base
        )
        blocks["past_actions"] = tuple(
            f"action:{name}@-{age}" for age in ages[: self.stack_actions] for name in self.action
        )
        return {name: columns for name, columns in blocks.items() if columns}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The name of every column of the observation."""
        return tuple(name for block in self.blocks.values() for name in block)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each block stands in the observation."""
        slices, start = {}, 0
        for name, columns in self.blocks.items():
            slices[name] = slice(start, start + len(columns))
            start += len(columns)
        return slices

    @property
    def is_plain(self) -> bool:
        """Whether the observation is the task's own, with nothing added."""
        return set(self.blocks) <= {"base"}

    def bounds(
        self, base_low: Array, base_high: Array, action_low: Array, action_high: Array
    ) -> tuple[Array, Array]:
        """The lowest and highest value of each column."""
        infinite = np.full(len(self.controlled or ()), np.inf)
        low = {
            "base": base_low,
            "previous_action": action_low,
            "pending_actions": np.tile(action_low, self.pending_slots),
            "selection_time": np.zeros(1),
            "vector_to_go": -infinite,
            "past_observations": np.tile(base_low, self.stack_observations),
            "past_actions": np.tile(action_low, self.stack_actions),
        }
        high = {
            "base": base_high,
            "previous_action": action_high,
            "pending_actions": np.tile(action_high, self.pending_slots),
            "selection_time": np.ones(1),
            "vector_to_go": infinite,
            "past_observations": np.tile(base_high, self.stack_observations),
            "past_actions": np.tile(action_high, self.stack_actions),
        }
        return (
            np.concatenate([low[name] for name in self.blocks]),
            np.concatenate([high[name] for name in self.blocks]),
        )

    def assemble(
        self,
        base: Array,
        selection_time: Array,
        vector_to_go: Array | None,
        past: Past,
        dtype: type[np.floating] = np.float32,
        previous_action: Array | None = None,
        pending_actions: Array | None = None,
    ) -> Array:
        """Put observations (n, columns) together from what is known at an instant.

        previous_action: columns of the action in force (default: of the one decided last)
        pending_actions: (n, slots, action columns) of those pending (default: none is)
        """
        n = len(base)
        waiting = 0.0 if pending_actions is None else pending_actions.reshape(n, -1)
        sources = {
            "base": base,
            "previous_action": past.actions[:, 0] if previous_action is None else previous_action,
            "pending_actions": waiting,
            "selection_time": selection_time[:, None],
            "vector_to_go": vector_to_go,
            "past_observations": past.observations[:, : self.stack_observations].reshape(n, -1),
            "past_actions": past.actions[:, : self.stack_actions].reshape(n, -1),
        }
        observation = np.empty((n, len(self.columns)), dtype)
        for name, columns in self.slices.items():
            observation[:, columns] = sources[name]
        return observation


class Past:
    """The latest observations and encoded actions of n environments, newest first.

    observations: (n, stack, base columns); actions: (n, max(1, stack), action columns)
    """

    def __init__(self, layout: Layout, n: int, dtype: type[np.floating] = np.float32) -> None:
        self.observations = np.zeros((n, layout.stack_observations, len(layout.base)), dtype)
        self.actions = np.zeros((n, max(1, layout.stack_actions), len(layout.action)), dtype)

    def reset(self, ids: NDArray[np.integer], base: Array) -> None:
        """Forget environments `ids`, whose first observations are `base` (len(ids), columns)."""
        self.actions[ids] = 0
        self.observations[ids] = base[:, None]

    def push(self, base: Array, actions: Array) -> None:
        """Remember an observation and the action chosen on it."""
        for memory, newest in ((self.observations, base), (self.actions, actions)):
            if memory.shape[1]:
                memory[:, 1:] = memory[:, :-1]
                memory[:, 0] = newest


def check_features(names: Iterable[str] | str) -> tuple[str, ...]:
    """Feature names, in the order of `FEATURES`; an error for unknown or repeated ones."""
    if not isinstance(names, Iterable):
        raise ValueError(f"knowledge must be names from {', '.join(FEATURES)}, got {names!r}")
    given = (names,) if isinstance(names, str) else tuple(names)
    for name in given:
        if name not in FEATURES:
            raise ValueError(
                f"unknown knowledge {name!r}: choose from {', '.join(FEATURES)} or leave it out"
            )
    if len(set(given)) != len(given):
        raise ValueError(f"knowledge named more than once: {', '.join(given)}")
    return tuple(name for name in FEATURES if name in given)
