"""Greedy policies of Q-networks over discrete actions, feed-forward and recurrent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.finite import check_finite
from midstride.policies.memory import Remembers

Array = NDArray[np.float32]
Weights = dict[str, NDArray[Any]]


class QPolicy(Remembers):
    """Greedy policy of a Q-network: `policy(observation) -> action`, or for a batch of them.

    Actions are those of the environment: `description["actions"]` lists what the network's choices
    stand for, where that is not the choice's own number. Call `reset()` before each episode; a
    recurrent policy forgets, a feed-forward one has nothing to forget.
    """

    def __init__(self, weights: Weights, description: dict[str, Any] | None = None) -> None:
        self.weights = weights
        self.description = description or {}
        actions = self.description.get("actions")
        self._actions = None if actions is None else np.array(actions, np.float32)

    @property
    def observation_size(self) -> int:
        first = "cell.weight_ih" if self.is_recurrent else self._head_names()[0]
        return int(self.weights[first].shape[1])

    def __call__(self, observation: NDArray[Any]) -> Any:
        """The best action for an observation, or one for each of a batch (n, columns)."""
        chosen = self.choose(observation)
        if self._actions is not None:
            return self._actions[chosen]
        return chosen if isinstance(chosen, np.ndarray) else int(chosen)

    def choose(self, observation: NDArray[Any]) -> Any:
        """The number of the best action, or one for each of a batch."""
        observation = np.asarray(observation, np.float32)
        if observation.shape[-1] != self.observation_size or observation.ndim > 2:
            raise ValueError(
                f"this policy observes {self.observation_size} columns, got shape "
                f"{observation.shape}"
            )
        check_finite(observation)
        if observation.ndim == 1:
            return self.values(observation[None]).argmax(axis=1)[0]
        return self.values(observation).argmax(axis=1)

    def values(self, observation: Array) -> Array:
        """Q of each action, (n, actions); a recurrent policy takes the observation in."""
        return self._head(self.with_memory(observation) if self.is_recurrent else observation)

    def _head_names(self) -> list[str]:
        names = [f"head.layers.{i}.weight" for i in range(len(self.weights))]
        return [name for name in names if name in self.weights] + ["head.advantage.weight"]

    def _head(self, x: Array) -> Array:
        *hidden, last = self._head_names()
        for name in hidden:
            x = self._linear(name, x)
            np.maximum(x, 0, out=x)
        q = self._linear(last, x)
        if "head.value.weight" in self.weights:
            q = self._linear("head.value.weight", x) + q - q.mean(axis=1, keepdims=True)
        return q

    def _linear(self, name: str, x: Array) -> Array:
        bias = self.weights[name.replace("weight", "bias")]
        return np.asarray(x @ self.weights[name].T + bias)
