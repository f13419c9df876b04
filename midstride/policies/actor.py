"""Policies of actor networks: continuous actions from a mean and a deviation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.finite import check_finite
from midstride.policies.memory import Remembers

Array = NDArray[np.float32]
Weights = dict[str, NDArray[Any]]

LOG_DEVIATION = (-5.0, 2.0)  # what a log deviation is kept within
CLIP = 10.0  # normalised observations beyond it are cut: a column that hardly ever moved


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}
_SQUASHES: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "clip": lambda x: x,  # `to_environment` clips
}


class ActorPolicy(Remembers):
    """A Gaussian brought into [-1, 1]: `policy(observation) -> action`, or for a batch.

    Acting takes the mean; `sample` draws, which is how it explores (a policy that was not trained
    to explore has no deviation, and only acts). `description` holds the bounds of the environment's
    actions (low, high), how they are kept (squash: tanh, or clip) and what is between layers
    (activation: relu, or tanh); the weights hold what observations are normalised by. With weights
    of a predictor, the actor sees what that foresees in place of what is observed; with those of
    an LSTM, what is remembered too: call `reset()` before each episode.
    """

    def __init__(self, weights: Weights, description: dict[str, Any]) -> None:
        self.weights = weights
        self.description = description
        self._low = np.array(description["low"], np.float32)
        self._high = np.array(description["high"], np.float32)
        self._squash = _SQUASHES[description.get("squash", "tanh")]
        self._activation = _ACTIVATIONS[description.get("activation", "relu")]

    @classmethod
    def of(
        cls, network: Weights, mean: Array, scale: Array, description: dict[str, Any]
    ) -> ActorPolicy:
        """The actor among the weights of a network, with what observations are normalised by."""
        acts = ("actor.", "predictor.", "cell.")
        actor = {name: array for name, array in network.items() if name.startswith(acts)}
        return cls({**actor, "normal.mean": mean, "normal.scale": scale}, dict(description))

    @property
    def observation_size(self) -> int:
        return int(self.weights["normal.mean"].size)

    def __call__(self, observation: NDArray[Any]) -> Array:
        """The mean action (size,), or one for each of a batch."""
        x = np.asarray(observation, np.float32)
        if x.shape[-1] != self.observation_size or x.ndim > 2:
            raise ValueError(
                f"this policy observes {self.observation_size} columns, got shape {x.shape}"
            )
        check_finite(x)
        features = self._features(x[None] if x.ndim == 1 else x)
        action = self.to_environment(self._squash(self._linear("actor.mean", features)))
        return action[0] if x.ndim == 1 else action

    def sample(self, observation: NDArray[Any], rng: np.random.Generator) -> Array:
        """Actions drawn for a batch (n, columns): in [-1, 1], or before they are clipped to it."""
        mean, log_deviation = self.distribution(np.asarray(observation, np.float32))
        noise = rng.standard_normal(mean.shape, np.float32)
        return self._squash(np.asarray(mean + np.exp(log_deviation) * noise, np.float32))

    def to_environment(self, action: Array) -> Array:
        """Actions in [-1, 1], or clipped to it, as the environment takes them."""
        share = (np.clip(action, -1, 1) + 1) / 2
        return np.asarray(self._low + share * (self._high - self._low), np.float32)

    def distribution(self, x: Array) -> tuple[Array, Array]:
        """Mean and log deviation before they are squashed: (n, size) each.

        A log deviation that is the same everywhere has no weight, only a bias.
        """
        features = self._features(x)
        mean = self._linear("actor.mean", features)
        if "actor.log_deviation.weight" in self.weights:
            log_deviation = self._linear("actor.log_deviation", features)
        else:
            log_deviation = np.broadcast_to(self.weights["actor.log_deviation.bias"], mean.shape)
        return mean, np.clip(log_deviation, *LOG_DEVIATION)

    def _features(self, x: Array) -> Array:
        w = self.weights
        x = np.clip((x - w["normal.mean"]) * w["normal.scale"], -CLIP, CLIP)
        if "predictor.out.weight" in w:
            x = self._foreseen(x)
        if self.is_recurrent:
            x = self.with_memory(x)
        return self._layers("actor", x)

    def _foreseen(self, x: Array) -> Array:
        """The environment's own columns, the first ones, as they will be at the switch."""
        w = self.weights
        out = self._linear("predictor.out", self._layers("predictor", x))
        move = w["normal.move_mean"] + out / w["normal.move_scale"]
        return np.asarray(x[:, : out.shape[1]] + move * w["normal.scale"][: out.shape[1]])

    def _layers(self, part: str, x: Array) -> Array:
        layers = 0
        while f"{part}.layers.{layers}.weight" in self.weights:
            x = self._activation(self._linear(f"{part}.layers.{layers}", x))
            layers += 1
        return x

    def _linear(self, name: str, x: Array) -> Array:
        return np.asarray(x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"])
