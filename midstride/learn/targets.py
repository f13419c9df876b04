"""Bellman targets, blocking and concurrent, as pure functions of batched arrays.

The discount is per second: a step of `d` seconds discounts by `gamma_per_s ** d`, so that agents of
different periods value time alike. `terminated` is true where the task itself ended the episode:
nothing follows. A time limit is not a termination: what follows is bootstrapped, from the
observation at which the clock ran out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chex
import jax
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
    reward: Array, terminated: Array, bootstrap_next: Array, gamma_per_s: float, elapsed_s: Array
) -> Array:
    """y = r + gamma^H max_a' Q(s_{t+H}, c_{t+H}, a'): Algorithm 1, on the augmented state.

    With n-step returns, `reward` is their discounted sum and `elapsed_s` the sum of their periods.
    """
    chex.assert_equal_shape([reward, terminated, bootstrap_next, elapsed_s])
    return reward + gamma_per_s**elapsed_s * jnp.where(terminated, 0.0, bootstrap_next)


def concurrent_target(
    reward_before_switch: Array,
    reward_after_switch: Array,
    terminated: Array,
    bootstrap_switch: Array,
    gamma_per_s: float,
    latency_s: Array,
) -> Array:
    """y = r_before + gamma^(t_AS) max_a' Q(s_{t+t_AS}, a_t in flight, a'): T_c*, Eq. 8.

    Where the task ended within the period nothing is bootstrapped, and what was earned after the
    switch counts instead.
    """
    chex.assert_equal_shape(
        [reward_before_switch, reward_after_switch, terminated, bootstrap_switch, latency_s]
    )
    following = jnp.where(terminated, reward_after_switch, bootstrap_switch)
    return reward_before_switch + gamma_per_s**latency_s * following


def until_switch_target(
    reward_before_switch: Array,
    ended_before_switch: Array,
    value_switch: Array,
    gamma_per_s: float,
    latency_s: Array,
) -> Array:
    """y = r_before + gamma^(t_AS) W(s_{t+t_AS}, a_t): from the switch back to the capture.

    ended_before_switch: where the task ended before the decision could come into force
    """
    chex.assert_equal_shape([reward_before_switch, ended_before_switch, value_switch, latency_s])
    following = jnp.where(ended_before_switch, 0.0, value_switch)
    return reward_before_switch + gamma_per_s**latency_s * following


def after_switch_target(
    reward_after_switch: Array,
    terminated: Array,
    value_next: Array,
    gamma_per_s: float,
    execution_s: Array,
) -> Array:
    """y = r_after + gamma^(H - t_AS) V(s_{t+H}, a_t in flight): from the next capture back."""
    chex.assert_equal_shape([reward_after_switch, terminated, value_next, execution_s])
    return reward_after_switch + gamma_per_s**execution_s * jnp.where(terminated, 0.0, value_next)


def generalised_advantage(
    reward: Array,
    terminated: Array,
    truncated: Array,
    value: Array,
    value_next: Array,
    discount: Array,
    trace: float,
) -> Array:
    """A_t = d_t + discount_t trace A_{t+1}, d_t = r_t + discount_t V_{t+1} - V_t (Schulman, 2016).

    All are (time, environments). The sum stops where an episode ends. `value_next` is the value of
    the observation that followed, the last one of an episode that ended: at a time limit it counts,
    at a termination it does not.
    """
    chex.assert_equal_shape([reward, terminated, truncated, value, value_next, discount])
    error = reward + discount * jnp.where(terminated, 0.0, value_next) - value
    carried = jnp.where(terminated | truncated, 0.0, discount * trace)

    def back(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = now[0] + now[1] * after
        return advantage, advantage

    _, found = jax.lax.scan(back, jnp.zeros_like(error[0]), (error, carried), reverse=True)
    return found


def bellman_target(settings: Any, steps: Any, bootstrap: Callable[[Any], Any]) -> Any:
    """The target that the settings ask for; `bootstrap(observation)` is the value there."""
    before, after = steps["reward_before_switch"], steps["reward_after_switch"]
    ended, gamma = steps["terminated"], settings.gamma_per_s
    if settings.target == "full_period":
        value = bootstrap(steps["observation_next"])
        return full_period_target(before + after, ended, value, gamma, steps["period_s"])
    value = bootstrap(steps["observation_switch"])
    return concurrent_target(before, after, ended, value, gamma, steps["latency_s"])
