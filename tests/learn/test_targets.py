"""Targets against numbers worked out by hand."""

import jax.numpy as jnp
import pytest

from midstride.learn.targets import best_next, concurrent_target, full_period_target

TERMINATED = jnp.array([False, True])


def test_double_q_selects_with_one_and_values_with_the_other():
    select, value = jnp.array([[1.0, 3.0, 2.0]]), jnp.array([[10.0, 20.0, 30.0]])
    assert best_next(select, value).tolist() == [20.0]
    assert best_next(value, value).tolist() == [30.0]


def test_full_period_by_hand():
    reward, bootstrap = jnp.array([1.0, 1.0]), jnp.array([10.0, 10.0])
    y = full_period_target(reward, TERMINATED, bootstrap, 0.5, jnp.array([2.0, 2.0]))
    assert y.tolist() == pytest.approx([1 + 0.25 * 10, 1])


def test_full_period_with_a_time_for_each():
    no, elapsed_s = jnp.zeros(2, bool), jnp.array([3.0, 1.0])
    y = full_period_target(jnp.zeros(2), no, jnp.array([10.0, 10.0]), 0.9, elapsed_s)
    assert y.tolist() == pytest.approx([7.29, 9.0])


def test_concurrent_by_hand():
    y = concurrent_target(
        reward_before_switch=jnp.array([1.0, 1.0]),
        reward_after_switch=jnp.array([5.0, 5.0]),
        terminated=TERMINATED,
        bootstrap_switch=jnp.array([10.0, 10.0]),
        gamma_per_s=0.81,
        latency_s=jnp.array([0.5, 0.5]),
    )
    # 0.81^(1/2) = 0.9; at a termination what was earned after the switch counts instead
    assert y.tolist() == pytest.approx([1 + 0.9 * 10, 1 + 0.9 * 5])


def test_concurrent_is_the_full_period_when_latency_fills_it():
    reward, q, period_s = jnp.array([2.0]), jnp.array([7.0]), jnp.array([0.3])
    no = jnp.array([False])
    concurrent = concurrent_target(reward, jnp.zeros(1), no, q, 0.9, period_s)
    assert concurrent.tolist() == full_period_target(reward, no, q, 0.9, period_s).tolist()


def test_shapes_are_checked():
    with pytest.raises(AssertionError):
        full_period_target(jnp.zeros(2), jnp.zeros(2, bool), jnp.zeros((2, 1)), 0.9, jnp.zeros(2))
    with pytest.raises(AssertionError):
        best_next(jnp.zeros((2, 3)), jnp.zeros((2, 4)))
