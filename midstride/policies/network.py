"""Feed-forward networks of others, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, np.float32(0)))


def _elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0)))


# By the names that PyTorch has for them, with PyTorch's defaults.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "ReLU": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "ELU": _elu,
    "SELU": lambda x: np.asarray(1.0507009873554805 * _elu(x, 1.6732632423543772), np.float32),
    "LeakyReLU": lambda x: np.where(x > 0, x, np.float32(0.01) * x),
    "ReLU6": lambda x: np.clip(x, 0, 6),
    "SiLU": lambda x: x * _sigmoid(x),
    "GELU": lambda x: x * (0.5 * (1 + _erf(x / math.sqrt(2)).astype(np.float32))),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Sigmoid": _sigmoid,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Hardtanh": lambda x: np.clip(x, -1, 1),
    "Identity": lambda x: x,
}


@dataclass(frozen=True)
class Network:
    """Linear layers with one activation function between them, none after the last."""

    layers: tuple[tuple[Array, Array], ...]  # weights (out, in) and bias (out,)
    activation: str

    @property
    def inputs(self) -> int:
        return int(self.layers[0][0].shape[1])

    @property
    def outputs(self) -> int:
        return int(self.layers[-1][0].shape[0])

    def __call__(self, x: Array) -> Array:
        """(n, inputs) -> (n, outputs)"""
        between = ACTIVATIONS[self.activation]
        for weights, bias in self.layers[:-1]:
            x = between(x @ weights.T + bias)
        weights, bias = self.layers[-1]
        return np.asarray(x @ weights.T + bias)
