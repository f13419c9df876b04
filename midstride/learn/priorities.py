"""Prioritised sampling: a sum tree over the places of a replay."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.learn.replay import Replay


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

    def restore(self, leaves: NDArray[Any], largest: float) -> None:
        """Go on with these priorities: every sum is that of its two parts, as `_set` leaves it."""
        self.largest = largest
        self.tree[self.leaves :] = leaves
        size = self.leaves
        while size > 1:
            parts = self.tree[size : 2 * size]
            self.tree[size // 2 : size] = parts[::2] + parts[1::2]
            size //= 2

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


class Prioritised:
    """Which transitions of a replay are sampled, by the errors that they had when last learned."""

    def __init__(self, replay: Replay, n_step: int) -> None:
        self._replay, self._n_step = replay, n_step
        self._priorities = Priorities(replay.length * replay.num_envs)
        self._seen = 0
        self._sampled: deque[NDArray[Any]] = deque()  # places of each batch under way

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, int]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Rows, environments and importance weights of transitions, each of `shape`."""
        replay = self._replay
        # A transition can be sampled once the n steps that it needs are there.
        complete = replay.added - self._n_step + 1
        new = np.arange(max(self._seen, complete - replay.length), complete) % replay.length
        places = (new[:, None] * replay.num_envs + np.arange(replay.num_envs)).ravel()
        if len(places):
            self._priorities.set_new(places)
        self._seen = complete
        sampled, weights = self._priorities.sample(rng, shape[0] * shape[1])
        self._sampled.append(sampled)
        rows, envs = np.divmod(sampled.reshape(shape), replay.num_envs)
        return rows, envs, weights.reshape(shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is known of the transitions, for a checkpoint."""
        tree = self._priorities
        return {
            "leaves": tree.tree[tree.leaves :],
            "largest": np.array([tree.largest]),
            "seen": np.array([self._seen]),
            **{f"sampled.{i:04d}": places for i, places in enumerate(self._sampled)},
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._priorities.restore(arrays["leaves"], float(arrays["largest"][0]))
        self._seen = int(arrays["seen"][0])
        self._sampled = deque(arrays[n] for n in sorted(arrays) if n.startswith("sampled."))

    def learn(self, errors: NDArray[Any]) -> None:
        """The errors of the oldest batch under way are known."""
        self._priorities.update(self._sampled.popleft(), errors.ravel())
