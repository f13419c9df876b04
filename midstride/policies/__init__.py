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

from midstride.disk.files import write_whole
from midstride.tasks.grasp.actions import meant

Array = NDArray[np.float32]
Weights = dict[str, NDArray[Any]]

SIDES = (4, 2, 2)  # of the patches of an image, then of the squares of neighbours merged

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


class CemPolicy:
    """Greedy policy of a critic: the action of the largest Q, by the cross-entropy method.

    `policy(observation) -> action` for an observation (a state, or a dictionary of image and
    state) or a batch of them. The search draws at random from a generator of its own, which
    `reset()` starts anew: the same episodes give the same actions.
    """

    is_recurrent, lstm_size = False, 0

    def __init__(self, weights: Weights, description: dict[str, Any]) -> None:
        """description: blocks (name -> columns), low, high, settings, and the search."""
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

    def __call__(self, observation: Any) -> NDArray[np.float32]:
        """The best action (size,), or one for each of a batch."""
        state = np.asarray(observation["state"] if self.sees else observation, np.float32)
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
        """Logits of actions (n, samples, 7), given features (n, hidden)."""
        x = np.maximum(features[:, None] + self._linear("action", meant(action)), 0)
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


def blocks_of(x: Any, side: int) -> Any:
    """Images (n, h, w, c), NumPy or JAX, as (n, h / side, w / side, side * side * c)."""
    n, h, w, c = x.shape
    x = x.reshape(n, h // side, side, w // side, side, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // side, w // side, side * side * c)


AnyPolicy = Policy | CemPolicy


def save_policy(policy: AnyPolicy, folder: Path) -> None:
    """Write weights and description, each whole or not at all."""
    arrays = {name: np.asarray(array, order="C") for name, array in policy.weights.items()}
    write_whole(folder / WEIGHTS, save_tensors(arrays))
    write_whole(folder / DESCRIPTION, json.dumps(policy.description, indent=2) + "\n")


def load(run: str | Path) -> Any:
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
    if "search" in description:
        return CemPolicy(weights, description)
    return Policy(weights, description)
