"""Policies as objects: NumPy in, NumPy out, no learning framework.

The same code acts in training, in evaluation and on a robot. A saved policy is a safetensors file
of weights and a JSON file that says what they are; loading one runs nobody's code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from midstride.files import write_whole

Array = NDArray[np.float32]
Weights = dict[str, NDArray[Any]]

WEIGHTS, DESCRIPTION = "policy.safetensors", "policy.json"


class Policy:
    """Greedy policy of a Q-network: `policy(observation) -> action`, or for a batch of them.

    Call `reset()` before each episode; a recurrent policy forgets, a feed-forward one has nothing
    to forget. `description` is what the policy was trained for.
    """

    def __init__(self, weights: Weights, description: dict[str, Any] | None = None) -> None:
        self.weights = weights
        self.description = description or {}
        self._state: tuple[Array, Array] | None = None

    @property
    def is_recurrent(self) -> bool:
        return "cell.weight_hh" in self.weights

    @property
    def lstm_size(self) -> int:
        return self.weights["cell.weight_hh"].shape[1] if self.is_recurrent else 0

    @property
    def observation_size(self) -> int:
        first = "cell.weight_ih" if self.is_recurrent else self._head_names()[0]
        return int(self.weights[first].shape[1])

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """Forget the episode so far, in all environments of a batch or in some."""
        if which is None or self._state is None:
            self._state = None
        else:
            for part in self._state:
                part[which] = 0

    def state(self, n: int) -> tuple[Array, Array]:
        """The recurrent state of n environments, (n, lstm_size) each; zero after a reset."""
        if self._state is None or len(self._state[0]) != n:
            zeros = np.zeros((n, self.lstm_size), np.float32)
            self._state = (zeros, zeros.copy())
        return self._state

    def __call__(self, observation: NDArray[Any]) -> Any:
        """The best action for an observation, or one for each of a batch (n, columns)."""
        observation = np.asarray(observation, np.float32)
        if observation.shape[-1] != self.observation_size or observation.ndim > 2:
            raise ValueError(
                f"this policy observes {self.observation_size} columns, got shape "
                f"{observation.shape}"
            )
        if observation.ndim == 1:
            return int(self.values(observation[None]).argmax(axis=1)[0])
        return self.values(observation).argmax(axis=1)

    def values(self, observation: Array) -> Array:
        """Q of each action, (n, actions); a recurrent policy takes the observation in."""
        if not self.is_recurrent:
            return self._head(observation)
        h, c = self.state(len(observation))
        w = self.weights
        gates = observation @ w["cell.weight_ih"].T + h @ w["cell.weight_hh"].T + w["cell.bias"]
        i, f, g, o = np.split(gates, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        self._state = (h, c)
        return self._head(np.concatenate([observation, h], axis=1))

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


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1))


def save_policy(policy: Policy, folder: Path) -> None:
    """Write weights and description, each whole or not at all."""
    arrays = {name: np.asarray(array, order="C") for name, array in policy.weights.items()}
    write_whole(folder / WEIGHTS, save_tensors(arrays))
    write_whole(folder / DESCRIPTION, json.dumps(policy.description, indent=2) + "\n")


def load(run: str | Path) -> Policy:
    """The trained policy of a run folder."""
    folder = Path(run)
    if not (folder / WEIGHTS).exists():
        raise ValueError(
            f"{folder} holds no trained policy ({WEIGHTS} is missing): give the folder of a "
            "finished run"
        )
    try:
        weights = load_tensors((folder / WEIGHTS).read_bytes())
        description = json.loads((folder / DESCRIPTION).read_text())
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise ValueError(f"the policy in {folder} cannot be read: {error}") from None
    return Policy(weights, description)
