"""Actions of any space: as columns of an observation, at rest, kept while they are in flight."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[np.float64]


class ActionCode:
    """How an action reads in columns: one-hot, or scaled to [-1, 1] by its bounds.

    columns: their names; none where actions are neither discrete nor a Box, which no column holds
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.columns: tuple[str, ...] = ()
        self.units: Any = None
        self._start, self._rows = 0, None
        if isinstance(space, spaces.Discrete):
            self.columns = tuple(str(i) for i in range(int(space.n)))
            self.low, self.high = np.zeros(int(space.n)), np.ones(int(space.n))
            self._start, self._rows = int(space.start), np.eye(int(space.n))
            self.units = "one-hot"
        elif isinstance(space, spaces.Box):
            low, high, bounded = _bounds(space)
            self.columns = tuple(str(i) for i in range(low.size))
            self.middle, self.half = (low + high) / 2, (high - low) / 2
            self.high = np.where(bounded, 1.0, np.inf)
            self.low = -self.high
            self.units = [low.tolist(), high.tolist()]

    def of(self, action: Any) -> Array:
        """The columns of one action."""
        if self._rows is not None:
            return self._rows[int(action) - self._start]
        found = np.asarray(action, float).reshape(-1) - self.middle
        found /= self.half
        np.minimum(found, self.high, out=found)
        return np.maximum(found, self.low, out=found)

    def of_many(self, actions: Any, xp: Any) -> Any:
        """The columns of actions (n, ...), as an array of their namespace `xp`, where they are."""
        if self._rows is not None:
            rows = xp.asarray(self._rows, device=actions.device)
            return rows[actions.reshape(-1) - self._start]
        flat = actions.reshape(actions.shape[0], -1)
        middle, half, low, high = (
            xp.asarray(each, device=actions.device, dtype=flat.dtype)
            for each in (self.middle, self.half, self.low, self.high)
        )
        return xp.minimum(xp.maximum((flat - middle) / half, low), high)


def _bounds(space: spaces.Box) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Low and high of each element, and whether both mean something (dm_control writes 1e10)."""
    low, high = space.low.astype(float).ravel(), space.high.astype(float).ravel()
    bounded = (np.abs(low) < 1e9) & (np.abs(high) < 1e9)
    return np.where(bounded, low, -1.0), np.where(bounded, high, 1.0), bounded


def at_rest(space: gymnasium.Space[Any]) -> Any:
    """What actuators do if nobody says: zero, or what is nearest to it; the first of a choice."""
    match space:
        case spaces.Box():
            return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
        case spaces.Discrete():
            return space.dtype.type(space.start)
        case spaces.MultiDiscrete():
            return space.start.astype(space.dtype)
        case spaces.MultiBinary():
            return np.zeros(space.shape, space.dtype)
        case spaces.Dict():
            return {name: at_rest(part) for name, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(at_rest(part) for part in space.spaces)
    raise ValueError(
        f"what {space} does before the first decision arrives is not known: give it as hold="
    )


def check_hold(hold: Any, space: gymnasium.Space[Any]) -> Any:
    """`hold` as an action of `space`, or what the space does at rest."""
    if hold is None:
        return at_rest(space)
    found = hold
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        found = np.asarray(hold, space.dtype)
    elif isinstance(space, spaces.Discrete) and isinstance(hold, (int, np.integer)):
        found = space.dtype.type(hold)
    if found not in space:
        raise ValueError(f"hold must be an action of {space}, got {hold!r}")
    return found


def kept(action: Any) -> Any:
    """An action that stays as it is: who gave it may write the next one into the same array."""
    if isinstance(action, np.ndarray):
        return action.copy()
    return copy.deepcopy(action) if isinstance(action, (dict, tuple, list)) else action


def check_finite(action: Any) -> None:
    """An error unless all numbers of an action are finite.

    A sum of squares is one number to look at. It may overflow, so it only clears.
    """
    if type(action) is np.ndarray and action.ndim == 1 and math.isfinite(action.dot(action)):
        return
    if isinstance(action, (dict, tuple, list)):
        for part in action.values() if isinstance(action, dict) else action:
            check_finite(part)
        return
    numbers = np.asarray(action)
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        raise ValueError(f"an action must be finite numbers, got {numbers.tolist()}")
