"""DQN (Mnih et al., 2015) on the augmented state: the paper's Algorithm 1, discrete actions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from midstride.agents.agent import Agent, bellman_target, td_loss
from midstride.config import Config
from midstride.networks import FeedForward
from midstride.replay import Priorities, Replay
from midstride.targets import best_next


class DQN(Agent):
    """Feed-forward Q-learning from single transitions."""

    def __init__(self, config: Config, columns: int, actions: int) -> None:
        network = FeedForward(
            columns, config.hidden, actions, config.dueling, jax.random.key(config.seed)
        )
        super().__init__(config, network, self._q_loss)
        self._priorities: Priorities | None = None
        self._sampled: NDArray[Any] | None = None

    def sample(
        self, replay: Replay, rng: np.random.Generator, updates: int
    ) -> dict[str, NDArray[Any]]:
        """Batches (updates, batch_size, ...) for `dispatch`."""
        config = self.config
        shape = (updates, config.batch_size)
        weights = np.ones(shape, np.float32)
        if config.prioritised:
            places, weights = self._prioritised(replay, rng, shape)
            rows, envs = np.divmod(places, replay.num_envs)
        else:
            rows, envs = replay.rows(rng, updates * config.batch_size, config.n_step)
            rows, envs = rows.reshape(shape), envs.reshape(shape)
        batch = replay.gather(rows, envs, config.n_step, config.gamma)
        return {**batch, "weights": weights}

    def _prioritised(
        self, replay: Replay, rng: np.random.Generator, shape: tuple[int, int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        if self._priorities is None:
            self._priorities = Priorities(replay.length * replay.num_envs)
            self._seen = 0
        # A transition can be sampled once the n steps that it needs are there.
        complete = replay.added - self.config.n_step + 1
        new = np.arange(max(self._seen, complete - replay.length), complete) % replay.length
        places = (new[:, None] * replay.num_envs + np.arange(replay.num_envs)).ravel()
        if len(places):
            self._priorities.set_new(places)
        self._seen = complete
        sampled, weights = self._priorities.sample(rng, shape[0] * shape[1])
        self._sampled = sampled.reshape(shape)
        return self._sampled, weights.reshape(shape)

    def sync(self) -> dict[str, NDArray[Any]] | None:
        measured = super().sync()
        if measured is not None and self._priorities is not None and self._sampled is not None:
            self._priorities.update(self._sampled.ravel(), measured["error"].ravel())
            self._sampled = None
        return measured

    def _q_loss(self, online: Any, target: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        config = self.config

        def bootstrap(observation: Any) -> Any:
            by_target = jax.vmap(target)(observation)
            by_online = jax.vmap(online)(observation) if config.double else by_target
            return best_next(by_online, by_target)

        values = jax.vmap(online)(batch["observation"])
        q = jnp.take_along_axis(values, batch["action"][:, None], axis=1)[:, 0]
        return td_loss(q, bellman_target(config, batch, bootstrap), batch["weights"])
