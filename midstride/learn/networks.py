"""Q-networks in JAX: feed-forward, recurrent, and a critic of images and continuous actions.

The first two end in one value per discrete action; their inputs are unbatched, as Equinox has it:
`jax.vmap` them. The critic takes batches. `policies.py` computes the same numbers with NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from midstride.policies import SIDES, blocks_of
from midstride.tasks.grasp.actions import meant

State = tuple[Array, Array]  # of an LSTM: (h, c)


class Head(eqx.Module):
    """Hidden layers with ReLU, then a value per action (dueling: value + centred advantage)."""

    layers: list[eqx.nn.Linear]
    advantage: eqx.nn.Linear
    value: eqx.nn.Linear | None

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], actions: int, dueling: bool, key: Array
    ) -> None:
        keys = jax.random.split(key, len(hidden) + 2)
        sizes = (inputs, *hidden)
        self.layers = [
            eqx.nn.Linear(sizes[i], sizes[i + 1], key=keys[i]) for i in range(len(hidden))
        ]
        self.advantage = eqx.nn.Linear(sizes[-1], actions, key=keys[-2])
        self.value = eqx.nn.Linear(sizes[-1], 1, key=keys[-1]) if dueling else None

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        q = self.advantage(x)
        if self.value is None:
            return q
        return self.value(x) + q - q.mean()


class FeedForward(eqx.Module):
    """Q(observation, .)."""

    head: Head

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], actions: int, dueling: bool, key: Array
    ) -> None:
        self.head = Head(inputs, hidden, actions, dueling, key)

    def __call__(self, observation: Array) -> Array:
        return self.head(observation)


class Recurrent(eqx.Module):
    """Q(observations so far, .): an LSTM on the observation, then the head on both."""

    cell: eqx.nn.LSTMCell
    head: Head

    def __init__(
        self,
        inputs: int,
        hidden: tuple[int, ...],
        actions: int,
        dueling: bool,
        lstm_size: int,
        key: Array,
    ) -> None:
        cell_key, head_key = jax.random.split(key)
        self.cell = eqx.nn.LSTMCell(inputs, lstm_size, key=cell_key)
        self.head = Head(inputs + lstm_size, hidden, actions, dueling, head_key)

    def __call__(self, state: State, observation: Array) -> tuple[State, Array]:
        state = self.advance(state, self.project(observation))
        return state, self.values(state, observation)

    def project(self, observation: Array) -> Array:
        """What an observation adds to the gates; of many steps it can be had all at once."""
        assert self.cell.bias is not None
        return self.cell.weight_ih @ observation + self.cell.bias

    def advance(self, state: State, projected: Array) -> State:
        """An LSTM step."""
        h, c = state
        gates = projected + self.cell.weight_hh @ h
        i, f, g, o = jnp.split(gates, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def values(self, state: State, observation: Array) -> Array:
        """Q of each action, once the observation is in the state."""
        return self.head(jnp.concatenate([observation, state[0]]))


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

    def __init__(
        self,
        blocks: Mapping[str, slice],
        image_size: int,
        auxiliary: int,
        actions: int,
        hidden: int,
        key: Array,
    ) -> None:
        """blocks: columns of the state; image_size: 0 for none; auxiliary: numbers to predict."""
        keys = iter(jax.random.split(key, 4 * len(blocks) + 32))

        def linear(inputs: int, outputs: int, gain: float = 2.0) -> eqx.nn.Linear:
            layer = eqx.nn.Linear(inputs, outputs, key=next(keys))
            weight = jax.random.normal(next(keys), (outputs, inputs)) * (gain / inputs) ** 0.5
            return eqx.tree_at(
                lambda one: (one.weight, one.bias), layer, (weight, jnp.zeros(outputs))
            )

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
                linear(3 * SIDES[0] ** 2, first),
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
        """Of states (n, columns) and images (n, size, size, 3): features, what is predicted."""
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
        """Logits of actions (..., 7), given features (..., hidden).

        What an action that terminates says beside is not seen: a search would find the numbers
        there that flatter it most.
        """
        x = jax.nn.relu(features + _apply(self.action, meant(action)))
        for layer in self.layers:
            x = jax.nn.relu(_apply(layer, x))
        return _apply(self.out, x)[..., 0]


def _apply(layer: eqx.nn.Linear, x: Array) -> Array:
    assert layer.bias is not None
    return x @ layer.weight.T + layer.bias


def named_arrays(network: eqx.Module) -> dict[str, Array]:
    """The weights of a network by name, such as 'head.layers.0.weight'."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(network, eqx.is_array))
    return {_name(path): leaf for path, leaf in leaves}


def _name(path: tuple[object, ...]) -> str:
    return ".".join(str(getattr(k, "name", getattr(k, "idx", getattr(k, "key", k)))) for k in path)
