"""Recurrent DQN: an LSTM Q-network, learned from segments (Hausknecht & Stone, 2015).

Segments start from the recurrent state that was stored when they were lived, warmed up by a few
steps without learning, "burn-in" (Kapturowski et al., 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from midstride.learn.agent import Batch
from midstride.learn.agent_settings import AgentSettings
from midstride.learn.dqn import DQN, Head, QSettings, td_loss
from midstride.learn.targets import bellman_target, best_next
from midstride.settings import Range

State = tuple[Array, Array]  # of an LSTM: (h, c)


@dataclass(frozen=True)
class DRQNSettings(QSettings):
    """Of recurrent DQN."""

    agent: Literal["drqn"] = "drqn"
    """drqn: Q-learning with a recurrent network (an LSTM)"""
    lstm_size: Annotated[int, Range(1)] = 64
    """size of the recurrent state"""
    segment: Annotated[int, Range(1)] = 10
    """steps of a training segment that are learned from"""
    burn_in: Annotated[int, Range(0)] = 5
    """steps before them that only warm up the recurrent state"""


class Recurrent(eqx.Module):
    """Q(observations so far, .): an LSTM on the observation, then the head on both."""

    cell: eqx.nn.LSTMCell
    head: Head

    def __init__(self, inputs: int, settings: DRQNSettings, actions: int, key: Array) -> None:
        cell_key, head_key = jax.random.split(key)
        self.cell = eqx.nn.LSTMCell(inputs, settings.lstm_size, key=cell_key)
        inputs += settings.lstm_size
        self.head = Head(inputs, settings.hidden, actions, settings.dueling, head_key)

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


class DRQN(DQN):
    """Recurrent Q-learning from segments: DQN with another network, other batches, another loss."""

    Settings: ClassVar[type[AgentSettings]] = DRQNSettings
    span = property(lambda self: self.settings.burn_in + self.settings.segment)
    lstm_size = property(lambda self: self.settings.lstm_size)

    def make_network(self, settings: Any, columns: int, seed: int) -> eqx.Module:
        return Recurrent(columns, settings, self.actions, jax.random.key(seed))

    def sample(self, updates: int) -> Batch:
        """Batches (updates, segments, steps, ...)."""
        count = max(1, self.settings.batch_size // self.settings.segment)
        found: Batch = self.replay.segments(self.rng, (updates, count), self.span)
        return found

    def loss(self, online: Any, target: Any, batch: Any) -> tuple[Any, Any]:
        steps = self.row.unpack(jnp.swapaxes(batch["transitions"], 0, 1))  # (time, segments, ...)
        states, target_states = (self._states(net, batch, steps) for net in (online, target))
        steps = {name: value[self.settings.burn_in :] for name, value in steps.items()}

        def following(network: Any, states: Any, observation: Any) -> Any:
            """Q of a network one observation after the states it had."""
            return jax.vmap(jax.vmap(lambda s, o: network(s, o)[1]))(states, observation)

        def bootstrap(observation: Any) -> Any:
            by_target = following(target, target_states, observation)
            if not self.settings.double:
                return best_next(by_target, by_target)
            return best_next(following(online, states, observation), by_target)

        values = jax.vmap(jax.vmap(online.values))(states, steps["observation_capture"])
        q = jnp.take_along_axis(values, steps["action"][..., None], axis=-1)[..., 0]
        return td_loss(q, bellman_target(self.settings, steps, bootstrap))

    def _states(self, network: Any, batch: Any, steps: Any) -> Any:
        """Recurrent states (time, segments, size) after each step, from the burn-in's end on."""

        def step(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            projected, done = now
            after = jax.vmap(network.advance)(state, projected)
            # A new episode starts from nothing.
            return jax.tree.map(lambda x: jnp.where(done[:, None], 0.0, x), after), after

        burn_in = self.settings.burn_in
        projected = jax.vmap(jax.vmap(network.project))(steps["observation_capture"])
        done = steps["terminated"] | steps["truncated"]
        start = (batch["h"], batch["c"])
        state, _ = jax.lax.scan(step, start, (projected[:burn_in], done[:burn_in]))
        state = jax.lax.stop_gradient(state)
        return jax.lax.scan(step, state, (projected[burn_in:], done[burn_in:]))[1]
