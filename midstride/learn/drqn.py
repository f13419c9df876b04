"""Recurrent DQN: an LSTM Q-network, learned from segments (Hausknecht & Stone, 2015).

Segments start from the recurrent state that was stored when they were lived, warmed up by a few
steps without learning, "burn-in" (Kapturowski et al., 2019).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from midstride.learn.agent import Agent, bellman_target, td_loss
from midstride.learn.config import Config
from midstride.learn.networks import Recurrent
from midstride.learn.replay import Replay, unpack
from midstride.learn.targets import best_next


class DRQN(Agent):
    """Recurrent Q-learning from segments."""

    def __init__(self, config: Config, columns: int, actions: int) -> None:
        network = Recurrent(
            columns,
            config.hidden,
            actions,
            config.dueling,
            config.lstm_size,
            jax.random.key(config.seed),
        )
        super().__init__(config, network, self._q_loss)

    def sample(
        self, replay: Replay, rng: np.random.Generator, updates: int
    ) -> dict[str, NDArray[Any]]:
        """Batches (updates, segments, steps, ...) for `dispatch`."""
        config = self.config
        count = max(1, config.batch_size // config.segment)
        return replay.segments(rng, (updates, count), config.burn_in + config.segment)

    def _q_loss(self, online: Any, target: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        config = self.config
        steps = unpack(jnp.swapaxes(batch["transitions"], 0, 1))  # (time, segments, ...)
        states, target_states = (self._states(net, batch, steps) for net in (online, target))
        steps = {name: value[config.burn_in :] for name, value in steps.items()}

        def following(network: Any, states: Any, observation: Any) -> Any:
            """Q of a network one observation after the states it had."""
            return jax.vmap(jax.vmap(lambda s, o: network(s, o)[1]))(states, observation)

        def bootstrap(observation: Any) -> Any:
            by_target = following(target, target_states, observation)
            by_online = following(online, states, observation) if config.double else by_target
            return best_next(by_online, by_target)

        values = jax.vmap(jax.vmap(online.values))(states, steps["observation"])
        q = jnp.take_along_axis(values, steps["action"][..., None], axis=-1)[..., 0]
        return td_loss(q, bellman_target(config, steps, bootstrap))

    def _states(self, network: Any, batch: dict[str, Any], steps: dict[str, Any]) -> Any:
        """Recurrent states (time, segments, size) after each step, from the burn-in's end on."""

        def step(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            projected, done = now
            after = jax.vmap(network.advance)(state, projected)
            # A new episode starts from nothing.
            return jax.tree.map(lambda x: jnp.where(done[:, None], 0.0, x), after), after

        burn_in = self.config.burn_in
        projected = jax.vmap(jax.vmap(network.project))(steps["observation"])
        done = steps["done"]
        start = (batch["h"], batch["c"])
        state, _ = jax.lax.scan(step, start, (projected[:burn_in], done[:burn_in]))
        state = jax.lax.stop_gradient(state)
        return jax.lax.scan(step, state, (projected[burn_in:], done[burn_in:]))[1]
