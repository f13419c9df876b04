"""Greedy policies of critics: the action of the largest value, by the cross-entropy method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.finite import check_finite

Array = NDArray[np.float32]
Weights = dict[str, NDArray[Any]]

SIDES = (4, 2, 2)  # of the patches of an image, then of the squares of neighbours merged


class CemPolicy:
    """Greedy policy of a critic: the action of the largest Q, by the cross-entropy method.

    `policy(observation) -> action` for an observation (a state, or a dictionary of image and
    state) or a batch of them. The search draws at random from a generator of its own, which
    `reset()` starts anew: the same episodes give the same actions.
    """

    is_recurrent, lstm_size = False, 0

    def __init__(self, weights: Weights, description: dict[str, Any]) -> None:
        """description: blocks (name -> columns), low, high, settings, ends, and the search."""
        self.weights = weights
        self.description = description
        self._low, self._high, self._settings = (
            np.array(description[name], np.float32) for name in ("low", "high", "settings")
        )
        self._rng = np.random.default_rng(0)

    @property
    def observation_size(self) -> int:
        return max(stop for _, stop in self.description["blocks"].values())

    @property
    def sees(self) -> bool:
        """Whether it looks at an image."""
        return "image.0.weight" in self.weights

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """Start the random draws anew; there is nothing to forget of single episodes."""
        if which is None:
            self._rng = np.random.default_rng(0)

    @property
    def random(self) -> dict[str, Any]:
        """The state of the generator that it draws from."""
        return dict(self._rng.bit_generator.state)

    @random.setter
    def random(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state

    def __call__(self, observation: Any) -> NDArray[np.float32]:
        """The best action (size,), or one for each of a batch."""
        state = np.asarray(observation["state"] if self.sees else observation, np.float32)
        check_finite(state)
        single = state.ndim == 1
        image = np.asarray(observation["image"]) if self.sees else None
        if single:
            state, image = state[None], None if image is None else image[None]
        if state.shape[1] != self.observation_size:
            raise ValueError(
                f"this policy observes {self.observation_size} columns, got {state.shape[1]}"
            )
        action, _ = self.best(self.features(state, image))
        return action[0] if single else action

    def features(self, state: Array, image: NDArray[np.uint8] | None) -> Array:
        total = np.zeros((len(state), self.weights["action.bias"].size), np.float32)
        for name, (start, stop) in self.description["blocks"].items():
            inner = np.maximum(self._linear(f"blocks.{name}.0", state[:, start:stop]), 0)
            total += self._linear(f"blocks.{name}.1", inner)
        if image is None:
            return total
        x: Any = image.astype(np.float32) / 128 - 1
        for i, side in enumerate(SIDES):
            x = np.maximum(self._linear(f"patches.{i}", blocks_of(x, side)), 0)
        x = np.maximum(self._linear("image.0", x.reshape(len(x), -1)), 0)
        return total + self._linear("image.1", x)

    def score(self, features: Array, action: Array) -> Array:
        """Logits of actions (n, samples, size), given features (n, hidden)."""
        x = np.maximum(
            features[:, None] + self._linear("action", as_meant(action, self.description["ends"])),
            0,
        )
        for i in (0, 1):
            x = np.maximum(self._linear(f"layers.{i}", x), 0)
        return self._linear("out", x)[..., 0]

    def best(self, features: Array) -> tuple[Array, Array]:
        """The best actions found (n, size) and their logits, as `cem.maximise` finds them."""
        search, settings = self.description["search"], self._settings
        n, half = len(features), (self._high - self._low) / 2
        mean = np.broadcast_to((self._low + self._high) / 2, (n, 1, len(half)))
        deviation = np.broadcast_to(search["start"] * half, mean.shape)
        chance = np.full((n, len(settings)), 1 / len(settings))
        best = np.zeros((n, len(half) + settings.shape[1]), np.float32)
        best_score = np.full(n, -np.inf, np.float32)
        rows = np.arange(n)
        for _ in range(search["rounds"]):
            normal = self._rng.standard_normal((n, search["samples"], len(half)), np.float32)
            uniform = self._rng.random((n, search["samples"], 1))
            continuous = np.clip(mean + deviation * normal, self._low, self._high)
            chosen = (uniform > chance.cumsum(axis=1)[:, None, :-1]).sum(axis=2)
            actions = np.concatenate([continuous, settings[chosen]], axis=2).astype(np.float32)
            scores = self.score(features, actions)
            index = np.argpartition(-scores, search["elites"] - 1, axis=1)[:, : search["elites"]]
            kept = continuous[rows[:, None], index]
            mean = kept.mean(axis=1, keepdims=True)
            deviation = kept.std(axis=1, keepdims=True) + search["floor"] * half
            counts = np.eye(len(settings))[chosen[rows[:, None], index]].mean(axis=1)
            chance = (1 - search["smoothing"]) * counts + search["smoothing"] / len(settings)
            first = scores.argmax(axis=1)
            better = scores[rows, first] > best_score
            best[better] = actions[rows, first][better]
            best_score[better] = scores[rows, first][better]
        return best, best_score

    def _linear(self, name: str, x: Array) -> Array:
        w = self.weights
        flat = x.reshape(-1, x.shape[-1]) @ w[f"{name}.weight"].T + w[f"{name}.bias"]
        return np.asarray(flat).reshape(*x.shape[:-1], -1)


def as_meant(actions: Any, ends: int | None) -> Any:
    """Actions (..., size), NumPy or JAX: where column `ends` is on, nothing else of them counts."""
    if ends is None:
        return actions
    others = (np.arange(actions.shape[-1]) != ends).astype(np.float32)
    return actions * (1 - (actions[..., ends : ends + 1] > 0.5) * others)


def blocks_of(x: Any, side: int) -> Any:
    """Images (n, h, w, c), NumPy or JAX, as (n, h / side, w / side, side * side * c)."""
    n, h, w, c = x.shape
    x = x.reshape(n, h // side, side, w // side, side, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // side, w // side, side * side * c)
