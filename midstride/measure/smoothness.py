"""How smoothly a policy commands: from its actions alone, whatever the environment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


@dataclass(frozen=True)
class Smoothness:
    """Of the actions of an episode.

    jerk: root mean square of the second difference of the action per s^2, in units of half the
        action's range, so that environments compare; None of actions that have no order, and of
        episodes of fewer than three decisions
    changes_per_s: how often an element of the action changes its side of the middle of its range,
        mean over elements; of discrete actions, how often another one is chosen
    """

    jerk: float | None
    changes_per_s: float


def smoothness(actions: NDArray[Any], space: Any, seconds: float) -> Smoothness:
    """Of decisions (steps, ...) at equal distances in `seconds`."""
    steps = len(actions)
    if not isinstance(space, spaces.Box):
        changed = np.diff(actions.reshape(steps, -1), axis=0) != 0
        return Smoothness(None, float(changed.any(axis=1).sum()) / seconds)
    low, high = space.low.astype(float).ravel(), space.high.astype(float).ravel()
    bounded = (np.abs(low) < 1e9) & (np.abs(high) < 1e9) & (high > low)
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    middle, half = (low + high) / 2, (high - low) / 2
    scaled = (np.asarray(actions, float).reshape(steps, -1) - middle) / half
    sides = np.sign(scaled)
    changes = (sides[1:] * sides[:-1] < 0).sum() / scaled.shape[1] / seconds
    if steps < 3:
        return Smoothness(None, float(changes))
    period_s = seconds / steps
    second = np.diff(scaled, n=2, axis=0) / period_s**2
    return Smoothness(math.sqrt(float(np.mean(second**2))), float(changes))
