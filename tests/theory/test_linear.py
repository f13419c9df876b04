"""A linear world with noise: closed forms against SciPy, against chance itself, and each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_are, solve_discrete_lyapunov

from midstride.theory.linear import (
    LinearWorld,
    as_it_is,
    best,
    cost,
    in_record,
    taught,
    when_late,
)

STEPS = 60


def random_world(seed: int, process: float, sensor: float) -> LinearWorld:
    """Two states, one input, a little unstable."""
    rng = np.random.default_rng(seed)
    A = np.eye(2) + 0.2 * rng.standard_normal((2, 2))
    B = rng.standard_normal((2, 1))
    W, V = (rng.standard_normal((2, 2)) for _ in range(2))
    Q = np.diag(rng.uniform(0.1, 1, 2))
    R = np.array([[rng.uniform(0.05, 0.5)]])
    return LinearWorld(A, B, Q, R, process * W @ W.T, sensor * V @ V.T)


def lived(world, rule, k, rng, episodes=4_000, start=0.3):
    """Costs of episodes, lived one step after another."""
    x = start * rng.standard_normal((episodes, 2))
    flight = [np.zeros((episodes, 1)) for _ in range(k)]
    W, V = (np.linalg.cholesky(c + 1e-18 * np.eye(2)) for c in (world.process, world.sensor))
    total = np.zeros(episodes)
    for _ in range(STEPS):
        y = x + rng.standard_normal((episodes, 2)) @ V.T
        flight.append(np.hstack([y, *flight]) @ rule.T)
        u = flight.pop(0)
        total += ((x @ world.Q) * x).sum(axis=1) + ((u @ world.R) * u).sum(axis=1)
        x = x @ world.A.T + u @ world.B.T + rng.standard_normal((episodes, 2)) @ W.T
    return total


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("rule", [as_it_is, best])
def test_the_cost_of_an_episode_is_that_of_episodes(k, rule):
    world = random_world(3, process=0.01, sensor=0.005)
    acts = rule(world, k)
    found = lived(world, acts, k, np.random.default_rng(k))
    expected = cost(world, acts, k, STEPS, 0.09 * np.eye(2))
    assert abs(found.mean() - expected) < 5 * found.std() / np.sqrt(len(found))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_gain_is_scipys(seed):
    world = random_world(seed, 0, 0)
    P = solve_discrete_are(world.A, world.B, world.Q, world.R)
    K = np.linalg.solve(world.R + world.B.T @ P @ world.B, world.B.T @ P @ world.A)
    np.testing.assert_allclose(world.gain(), K, rtol=1e-5, atol=1e-7)


@given(seed=st.integers(0, 10_000), k=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_what_chance_takes_is_the_cost_of_the_predictions_error(seed, k):
    """In the long run: tr K'(R + B'PB)K S a step, S the covariance of what happens meanwhile."""
    world = random_world(seed, process=0.01, sensor=0)
    P = solve_discrete_are(world.A, world.B, world.Q, world.R)
    K = world.gain()
    unknown = sum(
        np.linalg.matrix_power(world.A, j) @ world.process @ np.linalg.matrix_power(world.A, j).T
        for j in range(k)
    )
    each = np.trace(K.T @ (world.R + world.B.T @ P @ world.B) @ K @ unknown)
    start = solve_discrete_lyapunov(world.A - world.B @ K, world.process)
    many, more = 1_000, 1_500

    def in_the_long_run(rule, late):
        return (cost(world, rule, late, more, start) - cost(world, rule, late, many, start)) / 500

    lost = in_the_long_run(best(world, k), k) - in_the_long_run(-K, 0)
    np.testing.assert_allclose(lost, each, rtol=1e-5, atol=1e-12)


@given(seed=st.integers(0, 10_000), k=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_where_nothing_is_random_nothing_is_lost_after_the_first_latency(seed, k):
    world = random_world(seed, 0, 0)
    start = 0.09 * np.eye(2)
    ahead = np.linalg.matrix_power(world.A, k)
    held = sum(
        np.trace(world.Q @ (M := np.linalg.matrix_power(world.A, i)) @ start @ M.T)
        for i in range(k)
    )
    waited = held + cost(world, -world.gain(), 0, STEPS - k, ahead @ start @ ahead.T)
    late = cost(world, best(world, k), k, STEPS, start)
    assert late == pytest.approx(waited, rel=1e-8)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_the_record_teaches_the_best_rule_but_where_chance_was_seen(seed):
    """With chance in the dynamics: right at one step of latency, wrong at two."""
    tried, start = np.array([[0.04]]), 0.04 * np.eye(2)
    sure, chance = random_world(seed, 0, 0), random_world(seed, 0.02, 0)
    for world, k in ((sure, 1), (sure, 2), (chance, 1)):
        found = taught(world, in_record(world, k, tried, STEPS, start))
        np.testing.assert_allclose(found, best(world, k), atol=1e-5)
    found = taught(chance, in_record(chance, 2, tried, STEPS, start))
    assert np.abs(found - best(chance, 2)).max() > 1e-3


@given(seed=st.integers(0, 10_000), k=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_acting_late_teaches_the_best_rule_whatever_acts(seed, k):
    world = random_world(seed, 0.02, 0)
    rule = 0.5 * best(world, k)
    found = taught(world, when_late(world, rule, k, np.array([[0.1]]), STEPS, 0.04 * np.eye(2)))
    np.testing.assert_allclose(found, best(world, k), atol=1e-5)


def test_moments_of_two_kinds_of_steps_are_weighed_by_their_number():
    world, tried, start = random_world(1, 0.02, 0), np.array([[0.04]]), 0.04 * np.eye(2)
    record = in_record(world, 2, tried, STEPS, start)
    late = when_late(world, best(world, 2), 2, tried, STEPS, start)
    apart = [
        np.abs(taught(world, record.of(100) + late.of(steps)) - best(world, 2)).max()
        for steps in (0.001, 100, 10_000)
    ]
    assert apart[0] > apart[1] > apart[2]


def test_a_world_that_no_feedback_holds():
    world = LinearWorld(2 * np.eye(2), np.zeros((2, 1)), np.eye(2), np.eye(1), *[np.eye(2)] * 2)
    with pytest.raises(ValueError, match="no feedback holds"):
        world.gain()
