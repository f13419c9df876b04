"""What a recurrent policy remembers of an episode: the state of an LSTM, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class Remembers:
    """The state of an LSTM for each environment of a batch, if its weights are there (`cell.*`)."""

    weights: dict[str, NDArray[Any]]
    _state: tuple[Array, Array] | None = None

    @property
    def is_recurrent(self) -> bool:
        return "cell.weight_hh" in self.weights

    @property
    def lstm_size(self) -> int:
        return self.weights["cell.weight_hh"].shape[1] if self.is_recurrent else 0

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

    def with_memory(self, x: Array) -> Array:
        """Take observations (n, columns) in; they and what is remembered, side by side."""
        h, c = self.state(len(x))
        w = self.weights
        gates = x @ w["cell.weight_ih"].T + h @ w["cell.weight_hh"].T + w["cell.bias"]
        i, f, g, o = np.split(gates, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        self._state = (h, c)
        return np.concatenate([x, h], axis=1)


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1))
