"""Bellman targets, blocking and concurrent, as pure functions of batched arrays.

`terminated` is true where the task itself ended the episode: nothing follows. A time limit is not a
termination: what follows is bootstrapped, from the observation at which the clock ran out.
"""

from __future__ import annotations

import chex
import jax.numpy as jnp
from jax import Array


def best_next(q_select: Array, q_value: Array) -> Array:
    """The value, by `q_value`, of the action that is best by `q_select`; both (..., actions).

    Double Q-learning selects with the online network and values with the target network; with the
    same array twice it is the plain maximum.
    """
    chex.assert_equal_shape([q_select, q_value])
    chosen = q_select.argmax(axis=-1)
    return jnp.take_along_axis(q_value, chosen[..., None], axis=-1)[..., 0]


def full_period_target(
    reward: Array, terminated: Array, bootstrap: Array, discount: Array | float
) -> Array:
    """y = r + gamma max_a' Q(s_{t+H}, c_{t+H}, a'): Algorithm 1, on the augmented state.

    With n-step returns, `reward` is their discounted sum and `discount` is gamma^n.
    """
    chex.assert_equal_shape([reward, terminated, bootstrap])
    return reward + discount * jnp.where(terminated, 0.0, bootstrap)


def concurrent_target(
    reward_before: Array,
    reward_after: Array,
    terminated: Array,
    bootstrap_at_switch: Array,
    gamma: float,
    latency_share: Array,
) -> Array:
    """y = r_before + gamma^(t_AS/H) max_a' Q(s_{t+t_AS}, a_t in flight, a'): T_c*, Eq. 8.

    latency_share: t_AS / H of each period. Where the task ended within the period nothing is
    bootstrapped, and what was earned after the switch counts instead.
    """
    chex.assert_equal_shape(
        [reward_before, reward_after, terminated, bootstrap_at_switch, latency_share]
    )
    following = jnp.where(terminated, reward_after, bootstrap_at_switch)
    return reward_before + gamma**latency_share * following


def continuous_target(
    reward_integral: Array, terminated: Array, bootstrap: Array, gamma: float, elapsed_s: Array
) -> Array:
    """y = (integral of gamma^(t'-t) r) + gamma^elapsed V, with gamma per second."""
    chex.assert_equal_shape([reward_integral, terminated, bootstrap, elapsed_s])
    return reward_integral + gamma**elapsed_s * jnp.where(terminated, 0.0, bootstrap)
