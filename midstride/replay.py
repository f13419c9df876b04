"""Replay: what happened, in order, in many environments at once.

A ring of time steps, each of all environments, so that n-step returns and segments for a recurrent
network are slices along time. Observations, rewards split at the switch, and timing are kept as
they came; sampling puts together what a target needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Batch = dict[str, NDArray[Any]]


class Replay:
    """The last `capacity` transitions of `num_envs` environments.

    Fields, each (time, environments, ...): observation, action, reward_before, reward_after,
    next_observation (the true one, before any autoreset), terminated, done (either way),
    observation_at_switch, latency_share (t_AS / H), and h, c (recurrent state before the step).
    """

    def __init__(self, capacity: int, num_envs: int, columns: int, lstm_size: int = 0) -> None:
        self.length = max(1, capacity // num_envs)
        self.num_envs = num_envs
        vector = (self.length, num_envs, columns)
        scalar = (self.length, num_envs)
        self.data: Batch = {
            "observation": np.zeros(vector, np.float32),
            "next_observation": np.zeros(vector, np.float32),
            "observation_at_switch": np.zeros(vector, np.float32),
            "action": np.zeros(scalar, np.int32),
            "reward_before": np.zeros(scalar, np.float32),
            "reward_after": np.zeros(scalar, np.float32),
            "latency_share": np.zeros(scalar, np.float32),
            "terminated": np.zeros(scalar, bool),
            "done": np.zeros(scalar, bool),
        }
        if lstm_size:
            state = (self.length, num_envs, lstm_size)
            self.data |= {"h": np.zeros(state, np.float32), "c": np.zeros(state, np.float32)}
        self.added = 0  # time steps ever added

    def __len__(self) -> int:
        """Transitions held."""
        return min(self.added, self.length) * self.num_envs

    def add(self, step: Batch) -> None:
        """Append a time step: every field, (environments, ...)."""
        row = self.added % self.length
        for name, values in self.data.items():
            values[row] = step[name]
        self.added += 1

    def rows(self, rng: np.random.Generator, count: int, span: int) -> tuple[Any, Any]:
        """Random starts (row, environment) of `span` time steps that are all still held."""
        held = min(self.added, self.length)
        if held < span:
            raise ValueError(f"cannot sample {span} steps in a row from {held}")
        oldest = self.added - held
        times = oldest + rng.integers(held - span + 1, size=count)
        return times % self.length, rng.integers(self.num_envs, size=count)

    def gather(self, rows: Any, envs: Any, n_step: int, gamma: float) -> Batch:
        """Transitions at given places, with n-step rewards: arrays of the shape of `rows`.

        `reward` sums up to n rewards, stopping where an episode ends; `bootstrap_discount` is gamma
        to the number summed, and `next_observation`, `terminated` are of the last one.
        """
        d = self.data
        batch = {
            name: d[name][rows, envs]
            for name in ("observation", "action", "reward_before", "reward_after", "latency_share")
        }
        batch["observation_at_switch"] = d["observation_at_switch"][rows, envs]
        reward = batch["reward_before"] + batch["reward_after"]
        discount = np.full(reward.shape, gamma, np.float32)
        last, over = rows, d["done"][rows, envs]
        for _ in range(n_step - 1):
            following = (last + 1) % self.length
            more = d["reward_before"][following, envs] + d["reward_after"][following, envs]
            reward = np.where(over, reward, reward + discount * more)
            discount = np.where(over, discount, discount * np.float32(gamma))
            last = np.where(over, last, following)
            over = over | d["done"][last, envs]
        batch["reward"], batch["bootstrap_discount"] = reward, discount
        batch["next_observation"] = d["next_observation"][last, envs]
        batch["terminated"] = d["terminated"][last, envs]
        return batch

    def segments(self, rng: np.random.Generator, shape: tuple[int, ...], span: int) -> Batch:
        """Random segments of `span` steps: fields (*shape, span, ...), h and c of the first."""
        count = int(np.prod(shape))
        rows, envs = self.rows(rng, count, span)
        steps = (rows[:, None] + np.arange(span)) % self.length
        batch = {
            name: values[steps, envs[:, None]].reshape(*shape, span, *values.shape[2:])
            for name, values in self.data.items()
            if name not in ("h", "c")
        }
        for name in ("h", "c"):
            batch[name] = self.data[name][rows, envs].reshape(*shape, -1)
        return batch


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
