"""The critic of QT-Opt: a value of image, state, knowledge and action.

The image trunk meets the action late; every block of the state has its own dense layers, and the
results are summed. It takes batches. `policies/cem.py` computes the same numbers with NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from midstride.policies.cem import SIDES, as_meant, blocks_of

_CHANNELS = (32, 48, 96)  # after the patches, and after each merge of 2 x 2 of them
IMAGE_FEATURES = 192
_BLOCK_FEATURES = 64


class Critic(eqx.Module):
    """Q(image, state, knowledge, action) as a logit; batches everywhere.

    What is observed is encoded once and scored against many actions. Every block of the state (what
    is measured, each kind of knowledge) and the action have layers of their own, whose outputs are
    summed, as in QT-Opt. The image goes through patches that do not overlap and merges of
    neighbours: reshapes and matrix products, which a CPU likes better than convolutions.
    """

    blocks: dict[str, list[eqx.nn.Linear]]
    patches: list[eqx.nn.Linear]  # the embedding of a patch, then the merges
    image: list[eqx.nn.Linear]
    auxiliary: eqx.nn.Linear | None
    action: eqx.nn.Linear
    layers: list[eqx.nn.Linear]
    out: eqx.nn.Linear
    columns: tuple[tuple[str, int, int], ...] = eqx.field(static=True)
    ends: int | None = eqx.field(static=True)

    def __init__(
        self,
        blocks: Mapping[str, slice],
        image_size: int,
        auxiliary: int,
        actions: int,
        ends: int | None,
        hidden: int,
        key: Array,
        channels: int = 3,
    ) -> None:
        """blocks: columns of the state; image_size: 0 for none; auxiliary: numbers to predict.

        ends: column of an action that, when on, silences all others; None if there is none
        """
        keys = iter(jax.random.split(key, 4 * len(blocks) + 32))

        def linear(inputs: int, outputs: int, gain: float = 2.0) -> eqx.nn.Linear:
            layer = eqx.nn.Linear(inputs, outputs, key=next(keys))
            weight = jax.random.normal(next(keys), (outputs, inputs)) * (gain / inputs) ** 0.5
            return eqx.tree_at(
                lambda one: (one.weight, one.bias), layer, (weight, jnp.zeros(outputs))
            )

        self.ends = ends
        self.columns = tuple((name, part.start, part.stop) for name, part in blocks.items())
        self.blocks = {
            name: [
                linear(stop - start, _BLOCK_FEATURES),
                linear(_BLOCK_FEATURES, hidden, gain=1.0),
            ]
            for name, start, stop in self.columns
        }
        first, second, third = _CHANNELS
        self.patches, self.image, self.auxiliary = [], [], None
        if image_size:
            left = image_size // math.prod(SIDES)
            self.patches = [
                linear(channels * SIDES[0] ** 2, first),
                linear(4 * first, second),
                linear(4 * second, third),
            ]
            self.image = [
                linear(left * left * third, IMAGE_FEATURES),
                linear(IMAGE_FEATURES, hidden, gain=1.0),
            ]
            self.auxiliary = linear(IMAGE_FEATURES, auxiliary, gain=0.1) if auxiliary else None
        self.action = linear(actions, hidden, gain=1.0)
        self.layers = [linear(hidden, hidden), linear(hidden, hidden)]
        self.out = linear(hidden, 1, gain=0.1)

    def encode(self, state: Array, image: Array | None) -> tuple[Array, Array | None]:
        """Of states (n, columns) and images (n, size, size, channels): features, predictions."""
        features = sum(
            _apply(second, jax.nn.relu(_apply(first, state[:, start:stop])))
            for (name, start, stop) in self.columns
            for first, second in [self.blocks[name]]
        )
        assert isinstance(features, Array)
        if image is None:
            return features, None
        x = image.astype(jnp.float32) / 128 - 1
        for layer, side in zip(self.patches, SIDES, strict=True):
            x = jax.nn.relu(_apply(layer, blocks_of(x, side)))
        x = jax.nn.relu(_apply(self.image[0], x.reshape(len(x), -1)))
        predicted = None if self.auxiliary is None else _apply(self.auxiliary, x)
        return features + _apply(self.image[1], x), predicted

    def score(self, features: Array, action: Array) -> Array:
        """Logits of actions (..., size), given features (..., hidden).

        What an action that terminates says beside is not seen: a search would find the numbers
        there that flatter it most.
        """
        x = jax.nn.relu(features + _apply(self.action, as_meant(action, self.ends)))
        for layer in self.layers:
            x = jax.nn.relu(_apply(layer, x))
        return _apply(self.out, x)[..., 0]


def _apply(layer: eqx.nn.Linear, x: Array) -> Array:
    assert layer.bias is not None
    return x @ layer.weight.T + layer.bias
