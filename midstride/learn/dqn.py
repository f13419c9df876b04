"""DQN (Mnih et al., 2015) on the augmented state: the paper's Algorithm 1, discrete actions."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from midstride.learn.agent import Agent, bellman_target, td_loss
from midstride.learn.config import Config
from midstride.learn.networks import FeedForward
from midstride.learn.replay import Priorities, Replay, unpack
from midstride.learn.targets import best_next


class DQN(Agent):
    """Feed-forward Q-learning from single transitions."""

    def __init__(self, config: Config, columns: int, actions: int) -> None:
        network = FeedForward(
            columns, config.hidden, actions, config.dueling, jax.random.key(config.seed)
        )
        super().__init__(config, network, self._q_loss)
        self._priorities: Priorities | None = None
        self._sampled: deque[NDArray[Any]] = deque()  # places of each batch under way

    def sample(
        self, replay: Replay, rng: np.random.Generator, updates: int
    ) -> dict[str, NDArray[Any]]:
        """Batches (updates, batch_size, ...) for `dispatch`."""
        config = self.config
        shape = (updates, config.batch_size)
        if config.prioritised:
            places, weights = self._prioritised(replay, rng, shape)
            rows, envs = np.divmod(places, replay.num_envs)
            return {**replay.gather(rows, envs, config.n_step, config.gamma), "weights": weights}
        rows, envs = replay.rows(rng, updates * config.batch_size, config.n_step)
        return replay.gather(rows.reshape(shape), envs.reshape(shape), config.n_step, config.gamma)

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
        self._sampled.append(sampled)
        return sampled.reshape(shape), weights.reshape(shape)

    def _finish(self, outcome: dict[str, Any]) -> dict[str, NDArray[Any]]:
        measured = super()._finish(outcome)
        if self._priorities is not None:
            self._priorities.update(self._sampled.popleft(), measured["error"].ravel())
        return measured

    def _q_loss(self, online: Any, target: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        config = self.config
        batch = {**batch, **unpack(batch["transitions"])}

        def bootstrap(observation: Any) -> Any:
            by_target = jax.vmap(target)(observation)
            by_online = jax.vmap(online)(observation) if config.double else by_target
            return best_next(by_online, by_target)

        values = jax.vmap(online)(batch["observation"])
        q = jnp.take_along_axis(values, batch["action"][:, None], axis=1)[:, 0]
        return td_loss(q, bellman_target(config, batch, bootstrap), batch.get("weights", 1.0))
