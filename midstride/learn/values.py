"""What a critic's number means: a share of the way between bounds, or so many units of reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray


@dataclass(frozen=True)
class Bounded:
    """Values between bounds: the number is a logit, learned by cross-entropy, as in QT-Opt."""

    low: float
    high: float

    def value(self, number: Array) -> Array:
        return self.low + (self.high - self.low) * jax.nn.sigmoid(number)

    def label(self, value: Array) -> Array:
        """What the number of a value should be, as a share from 0 to 1."""
        return jnp.clip((value - self.low) / (self.high - self.low), 0.0, 1.0)

    def loss(self, number: Array, label: Array) -> Array:
        return optax.sigmoid_binary_cross_entropy(number, label).mean()

    def told(self, number: Array) -> Array:
        """The number as labels are."""
        return jax.nn.sigmoid(number)


@dataclass(frozen=True)
class Unbounded:
    """Values of which nobody knows the bounds: the number counts units, by squared error."""

    unit: float

    def value(self, number: Array) -> Array:
        return self.unit * number

    def label(self, value: Array) -> Array:
        return value / self.unit

    def loss(self, number: Array, label: Array) -> Array:
        return optax.l2_loss(number, label).mean()

    def told(self, number: Array) -> Array:
        return number


Values = Bounded | Unbounded


def paid_in_a_second(steps: dict[str, NDArray[Any]]) -> float:
    """The size of the rewards of some steps, per second on average; 1 where there are none."""
    reward = np.abs(steps["reward_before_switch"] + steps["reward_after_switch"], dtype=float)
    seconds = steps["period_s"].sum(dtype=float)
    return float(reward.sum() / seconds) if reward.any() and seconds > 0 else 1.0
