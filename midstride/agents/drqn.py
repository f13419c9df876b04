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

from midstride.agents.agent import Agent, bellman_target, td_loss
from midstride.config import Config
from midstride.networks import Recurrent
from midstride.replay import Replay
from midstride.targets import best_next

SEGMENTS_SHARE = 16  # an update takes batch_size / 16 segments


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
        count = max(1, self.config.batch_size // SEGMENTS_SHARE)
        return replay.segments(rng, (updates, count), self.config.burn_in + self.config.segment)

    def _q_loss(self, online: Any, target: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        config = self.config
        values, states = self._unroll(online, batch)
        _, target_states = self._unroll(target, batch)
        learn = slice(config.burn_in, None)
        batch = {name: value[:, learn] for name, value in batch.items() if name not in ("h", "c")}
        batch["reward"] = batch["reward_before"] + batch["reward_after"]
        batch["bootstrap_discount"] = config.gamma

        def at(network: Any, states: Any, observation: Any) -> Any:
            """Q of a network one observation after the states it had."""
            return jax.vmap(jax.vmap(lambda s, o: network(s, o)[1]))(states, observation)

        def bootstrap(observation: Any) -> Any:
            by_target = at(target, target_states, observation)
            by_online = at(online, states, observation) if config.double else by_target
            return best_next(by_online, by_target)

        q = jnp.take_along_axis(values, batch["action"][..., None], axis=-1)[..., 0]
        return td_loss(q, bellman_target(config, batch, bootstrap), jnp.ones_like(q))

    def _unroll(self, network: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        """Q (segments, steps, actions) and states after each step, from the burn-in's end on."""

        def step(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            observation, done = now
            after, q = jax.vmap(network)(state, observation)
            # A new episode starts from nothing.
            following = jax.tree.map(lambda x: jnp.where(done[:, None], 0.0, x), after)
            return following, (q, after)

        def over_time(name: str, part: slice) -> Any:
            return jnp.swapaxes(batch[name][:, part], 0, 1)

        burn_in = self.config.burn_in
        warm, rest = slice(0, burn_in), slice(burn_in, None)
        state = (batch["h"], batch["c"])
        if burn_in:
            inputs = (over_time("observation", warm), over_time("done", warm))
            state, _ = jax.lax.scan(step, state, inputs)
            state = jax.lax.stop_gradient(state)
        inputs = (over_time("observation", rest), over_time("done", rest))
        _, (q, states) = jax.lax.scan(step, state, inputs)
        return jnp.swapaxes(q, 0, 1), jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), states)
