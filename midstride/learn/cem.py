"""The cross-entropy method: the action of the largest score, by sampling and narrowing down.

An action is continuous columns within bounds, and columns that take one of a few joint settings
(such as: do nothing, close, open, terminate). Each round draws actions, keeps the best, and draws
the next ones around those. The best action of all rounds is returned: a mean of good actions need
not be good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

_State = tuple[Array, Array, Array, Array, Array]


class ActionSpace(NamedTuple):
    """What an action can be: (continuous columns, then columns of the chosen setting)."""

    low: NDArray[np.floating]  # (continuous,)
    high: NDArray[np.floating]
    settings: NDArray[np.floating]  # (settings, columns); one setting without columns: none

    @property
    def size(self) -> int:
        return len(self.low) + self.settings.shape[1]


class Search(NamedTuple):
    """How to search. QT-Opt: 64 actions in 2 rounds, 6 kept."""

    samples: int = 64
    elites: int = 6
    rounds: int = 2
    start: float = 0.7  # standard deviation at first, of half the range
    floor: float = 0.02  # added to the deviation of the kept, of half the range
    smoothing: float = 0.1  # share of settings that is drawn evenly, whatever was kept


def maximise(
    score: Callable[[Array], Array],
    key: Array,
    batch: int,
    space: ActionSpace,
    search: Search = Search(),  # noqa: B008  (immutable)
) -> tuple[Array, Array]:
    """The best actions found (batch, size), and their scores (batch,).

    score: of actions (batch, samples, size), (batch, samples); compiled with the rest under jit
    """
    low, high = jnp.asarray(space.low, jnp.float32), jnp.asarray(space.high, jnp.float32)
    middle, half = (low + high) / 2, (high - low) / 2
    settings = jnp.asarray(space.settings, jnp.float32)
    shape = (batch, search.samples)

    def one_round(state: _State, key: Array) -> tuple[_State, None]:
        mean, deviation, chance, best, best_score = state
        normal_key, setting_key = jax.random.split(key)
        normal = jax.random.normal(normal_key, (*shape, len(space.low)))
        continuous = jnp.clip(mean + deviation * normal, low, high)
        chosen = jax.random.categorical(setting_key, jnp.log(chance), shape=shape)
        actions = jnp.concatenate([continuous, settings[chosen]], axis=-1)
        scores = score(actions)
        top, index = jax.lax.top_k(scores, search.elites)
        kept = jnp.take_along_axis(continuous, index[..., None], axis=1)
        kept_settings = jnp.take_along_axis(chosen, index, axis=1)
        counts = jax.nn.one_hot(kept_settings, len(settings)).mean(axis=1, keepdims=True)
        first = jnp.take_along_axis(actions, index[:, :1, None], axis=1)[:, 0]
        better = top[:, 0] > best_score
        return (
            kept.mean(axis=1, keepdims=True),
            kept.std(axis=1, keepdims=True) + search.floor * half,
            (1 - search.smoothing) * counts + search.smoothing / len(settings),
            jnp.where(better[:, None], first, best),
            jnp.where(better, top[:, 0], best_score),
        ), None

    mean = jnp.broadcast_to(middle, (batch, 1, len(space.low)))
    state = (
        mean,
        jnp.broadcast_to(search.start * half, mean.shape),
        jnp.full((batch, 1, len(settings)), 1 / len(settings)),
        jnp.zeros((batch, space.size)),
        jnp.full(batch, -jnp.inf),
    )
    (*_, best, best_score), _ = jax.lax.scan(one_round, state, jax.random.split(key, search.rounds))
    return best, best_score
