"""Q-networks in JAX: a feed-forward one and a recurrent one.

Both end in one value per discrete action. Inputs are unbatched, as Equinox has it: `jax.vmap` them.
`policies.py` computes the same numbers with NumPy alone.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

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


def named_arrays(network: eqx.Module) -> dict[str, Array]:
    """The weights of a network by name, such as 'head.layers.0.weight'."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(network, eqx.is_array))
    return {_name(path): leaf for path, leaf in leaves}


def _name(path: tuple[object, ...]) -> str:
    return ".".join(str(getattr(k, "name", getattr(k, "idx", k))) for k in path)
