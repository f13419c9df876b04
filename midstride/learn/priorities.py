"""Prioritised sampling: a sum tree over the places of a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Priorities:
    """A sum tree over the places of a replay: sampling in proportion to priority, in C speed.

    Proportional prioritisation (Schaul et al., 2016): priority = |error|^alpha, corrected by
    importance weights to the power beta. New transitions get the largest priority so far.
    """

    def __init__(self, size: int, alpha: float = 0.6, beta: float = 0.4) -> None:
        self.leaves = 1 << max(1, (size - 1).bit_length())
        self.tree = np.zeros(2 * self.leaves)
        self.alpha, self.beta, self.largest = alpha, beta, 1.0

    def set_new(self, places: NDArray[np.integer]) -> None:
        self._set(places, np.full(len(places), self.largest))

    def update(self, places: NDArray[np.integer], errors: NDArray[Any]) -> None:
        priorities = (np.abs(errors) + 1e-6) ** self.alpha
        self.largest = max(self.largest, float(priorities.max()))
        self._set(places, priorities)

    def _set(self, places: NDArray[np.integer], priorities: NDArray[Any]) -> None:
        node = places + self.leaves
        self.tree[node] = priorities
        node = np.unique(node // 2)
        while node[0] >= 1:
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]
            node = np.unique(node // 2)

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Any, Any]:
        """Places (count,) and their importance weights, the largest of which is 1."""
        mass = rng.random(count) * self.tree[1]
        node = np.ones(count, np.intp)
        while node[0] < self.leaves:
            left = self.tree[2 * node]
            right = mass >= left
            mass = np.where(right, mass - left, mass)
            node = 2 * node + right
        weights = np.maximum(self.tree[node], 1e-12) ** -self.beta
        return node - self.leaves, (weights / weights.max()).astype(np.float32)
