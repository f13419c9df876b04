"""Tabular operators: contraction, fixed points, and independent solvers."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstride.theory.tabular import (
    ConcurrentMDP,
    NotConverged,
    TickMDP,
    as_probabilities,
    blocking_operator,
    capture_value,
    evaluate_policy,
    full_period_operator,
    greedy,
    literal_concurrent_operator,
    solve,
    solve_blocking,
    solve_concurrent,
    to_capture,
    to_switch,
)


def random_world(seed: int, states: int = 4, actions: int = 3, deterministic: bool = False):
    rng = np.random.default_rng(seed)
    if deterministic:
        transitions = np.eye(states)[rng.integers(states, size=(actions, states))]
    else:
        transitions = rng.dirichlet(np.full(states, 0.5), size=(actions, states))
    return TickMDP(list(transitions), rng.normal(size=(states, actions)))


@st.composite
def mdps(draw, deterministic: bool = False):
    period = draw(st.integers(1, 5))
    latencies = draw(st.lists(st.integers(0, period), min_size=1, max_size=3, unique=True))
    weights = np.array([draw(st.integers(1, 5)) for _ in latencies], float)
    return ConcurrentMDP(
        random_world(draw(st.integers(0, 10_000)), deterministic=deterministic),
        period,
        draw(st.sampled_from([0.0, 0.3, 0.9, 0.97])),
        tuple(latencies),
        tuple(weights / weights.sum()),
        latency_known=draw(st.booleans()),
        discount_within=draw(st.booleans()),
    )


def pair_of(shape, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(scale=10, size=shape), rng.normal(scale=10, size=shape)


# --- Contraction and monotonicity


@given(mdp=mdps(), seed=st.integers(0, 10_000))
def test_the_concurrent_operator_contracts_by_its_share_of_gamma(mdp, seed):
    """|| T_c* Q1 - T_c* Q2 || <= gamma^(t_AS / H) || Q1 - Q2 ||, for each latency."""
    q1, q2 = pair_of(mdp.switch_shape, seed)
    gap = np.abs(to_capture(mdp, q1) - to_capture(mdp, q2)).max(axis=(1, 2, 3))
    for i, latency in enumerate(mdp.latencies_ticks):
        modulus = mdp.gamma ** (latency / mdp.period_ticks)
        assert gap[i] <= modulus * np.abs(q1[i] - q2[i]).max() + 1e-12


@given(mdp=mdps(), seed=st.integers(0, 10_000))
def test_the_rest_of_the_period_contracts_by_the_rest_of_gamma(mdp, seed):
    q1, q2 = pair_of(mdp.capture_shape, seed)
    gap = np.abs(to_switch(mdp, q1) - to_switch(mdp, q2)).max(axis=(1, 2))
    for i, latency in enumerate(mdp.latencies_ticks):
        modulus = mdp.gamma ** ((mdp.period_ticks - latency) / mdp.period_ticks)
        assert gap[i] <= modulus * np.abs(q1 - q2).max() + 1e-12


@given(mdp=mdps(), seed=st.integers(0, 10_000))
def test_full_period_and_blocking_contract_by_gamma(mdp, seed):
    for operator, shape in (
        (full_period_operator, mdp.capture_shape),
        (literal_concurrent_operator, mdp.capture_shape),
        (blocking_operator, mdp.capture_shape[1:3]),
    ):
        q1, q2 = pair_of(shape, seed)
        gap = np.abs(operator(mdp, q1) - operator(mdp, q2)).max()
        assert gap <= mdp.gamma * np.abs(q1 - q2).max() + 1e-12


@given(mdp=mdps(), seed=st.integers(0, 10_000))
def test_the_bounds_are_attained(mdp, seed):
    """Two tables that differ by a constant: the modulus is not merely a bound."""
    q, _ = pair_of(mdp.switch_shape, seed)
    gap = to_capture(mdp, q + 1) - to_capture(mdp, q)
    for i, latency in enumerate(mdp.latencies_ticks):
        assert gap[i] == pytest.approx(mdp.gamma ** (latency / mdp.period_ticks))
    q, _ = pair_of(mdp.capture_shape, seed)
    gap = full_period_operator(mdp, q + 1) - full_period_operator(mdp, q)
    assert gap == pytest.approx(mdp.gamma)
    q, _ = pair_of(mdp.capture_shape[1:3], seed)
    assert blocking_operator(mdp, q + 1) - blocking_operator(mdp, q) == pytest.approx(mdp.gamma)


@given(mdp=mdps(), seed=st.integers(0, 10_000))
def test_operators_are_monotone(mdp, seed):
    for operator, shape in (
        (to_capture, mdp.switch_shape),
        (to_switch, mdp.capture_shape),
        (full_period_operator, mdp.capture_shape),
        (literal_concurrent_operator, mdp.capture_shape),
        (blocking_operator, mdp.capture_shape[1:3]),
    ):
        q, other = pair_of(shape, seed)
        assert (operator(mdp, q + np.abs(other)) >= operator(mdp, q) - 1e-12).all()


# --- Fixed points


@given(mdp=mdps(), seed=st.integers(0, 10_000))
def test_the_fixed_point_is_one_and_found_from_any_start(mdp, seed):
    q1, q2 = pair_of(mdp.capture_shape, seed)
    ends = [solve(lambda q: full_period_operator(mdp, q), q, mdp.gamma, 1e-9) for q in (q1, q2)]
    assert ends[0] == pytest.approx(ends[1], abs=2e-9)
    assert full_period_operator(mdp, ends[0]) == pytest.approx(ends[0], abs=3e-9)
    # The same, met half-step by half-step.
    q_switch = to_switch(mdp, ends[0])
    assert to_switch(mdp, to_capture(mdp, q_switch)) == pytest.approx(q_switch, abs=3e-9)


@given(seed=st.integers(0, 10_000), period=st.integers(1, 5), within=st.booleans())
def test_zero_latency_is_blocking(seed, period, within):
    mdp = ConcurrentMDP(random_world(seed), period, 0.9, (0,), discount_within=within)
    q = np.random.default_rng(seed).normal(size=(4, 3))
    lifted = np.broadcast_to(q[None, :, None], mdp.capture_shape)
    expected = np.broadcast_to(blocking_operator(mdp, q)[None, :, None], mdp.capture_shape)
    assert (full_period_operator(mdp, lifted) == expected).all()
    blocking, concurrent = solve_blocking(mdp), solve_concurrent(mdp)
    assert concurrent[0, :, 0] == pytest.approx(blocking, abs=1e-9)
    assert (concurrent == concurrent[:, :, :1]).all()


def test_tolerance_is_kept_and_failure_is_said():
    mdp = ConcurrentMDP(random_world(0), 2, 0.99, (1,))
    exact = solve_concurrent(mdp, 1e-12)
    assert np.abs(solve_concurrent(mdp, 1e-3) - exact).max() <= 1e-3
    with pytest.raises(NotConverged, match=r"still .* wide after 2 iterations"):
        solve(lambda q: full_period_operator(mdp, q), exact * 0, 0.99, 1e-9, limit=2)


# --- Independent solvers


def brute_period(mdp, s: int, b: int, a: int, latency: int):
    """One period by pushing a distribution of states tick by tick: (reward, distribution)."""
    h, g = mdp.period_ticks, mdp.gamma ** (1 / mdp.period_ticks)
    dense = [np.asarray(m @ np.eye(mdp.world.states)) for m in mdp.world.transitions]
    distribution, reward = np.eye(mdp.world.states)[s], 0.0
    for tick in range(h):
        action = b if tick < latency else a
        undiscounted = 1.0 if tick < latency else g**latency
        weight = g**tick if mdp.discount_within else undiscounted
        reward += weight * float(distribution @ mdp.world.rewards[:, action])
        distribution = distribution @ dense[action]
    return reward, distribution


def augmented_mdp(mdp):
    """An ordinary MDP on states (s, b, latency), built explicitly."""
    states = list(
        itertools.product(
            range(mdp.world.states), range(mdp.world.actions), range(len(mdp.latencies_ticks))
        )
    )
    index = {state: i for i, state in enumerate(states)}
    actions = mdp.world.actions
    rewards = np.zeros((len(states), actions))
    transitions = np.zeros((len(states), actions, len(states)))
    for (s, b, i), a in itertools.product(states, range(actions)):
        reward, distribution = brute_period(mdp, s, b, a, mdp.latencies_ticks[i])
        rewards[index[s, b, i], a] = reward
        for following, p in enumerate(distribution):
            for j, q in enumerate(mdp.probabilities):
                transitions[index[s, b, i], a, index[following, a, j]] += p * q
    return states, rewards, transitions


def policy_iteration(rewards, transitions, gamma):
    """An ordinary MDP solver: Howard's, with linear solves."""
    n = len(rewards)
    policy = np.zeros(n, int)
    while True:
        p, r = transitions[np.arange(n), policy], rewards[np.arange(n), policy]
        value = np.linalg.solve(np.eye(n) - gamma * p, r)
        q = rewards + gamma * transitions @ value
        better = q.max(axis=1) > q[np.arange(n), policy] + 1e-10
        if not better.any():
            return q
        policy = np.where(better, q.argmax(axis=1), policy)


@given(mdp=mdps())
def test_the_concurrent_optimum_equals_an_ordinary_solver_on_the_augmented_mdp(mdp):
    mdp = ConcurrentMDP(
        mdp.world, mdp.period_ticks, mdp.gamma, mdp.latencies_ticks, mdp.probabilities,
        latency_known=True, discount_within=mdp.discount_within,
    )  # fmt: skip
    states, rewards, transitions = augmented_mdp(mdp)
    theirs = policy_iteration(rewards, transitions, mdp.gamma)
    ours = solve_concurrent(mdp, 1e-10)
    for i, (s, b, latency) in enumerate(states):
        assert ours[latency, s, b] == pytest.approx(theirs[i], abs=1e-8)


@given(mdp=mdps(), seed=st.integers(0, 100))
def test_policy_evaluation_equals_a_linear_solve_on_the_augmented_mdp(mdp, seed):
    rng = np.random.default_rng(seed)
    policy = rng.dirichlet(np.ones(3), size=mdp.capture_shape[:3])
    states, rewards, transitions = augmented_mdp(mdp)
    choice = np.array([policy[i, s, b] for s, b, i in states])
    p = np.einsum("xa,xay->xy", choice, transitions)
    value = np.linalg.solve(np.eye(len(states)) - mdp.gamma * p, (choice * rewards).sum(axis=1))
    expected = np.zeros((4, 3))
    for (s, b, i), v in zip(states, value, strict=True):
        expected[s, b] += mdp.probabilities[i] * v
    assert evaluate_policy(mdp, policy) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("latencies", [(0,), (1,), (2,), (0, 2)])
@pytest.mark.parametrize("known", [True, False])
def test_value_iteration_equals_the_best_of_all_policies(seed, latencies, known):
    """Brute force: every deterministic policy on the augmented state, evaluated exactly."""
    world = random_world(seed, states=2, actions=2)
    p = tuple(np.full(len(latencies), 1 / len(latencies)))
    mdp = ConcurrentMDP(world, 2, 0.9, latencies, p, latency_known=known)
    free = (len(latencies) if known else 1, 2, 2)
    tables = np.array(list(itertools.product(range(2), repeat=int(np.prod(free)))))
    tables = np.broadcast_to(tables.reshape(-1, *free), (len(tables), len(latencies), 2, 2))
    values = evaluate_policy(mdp, as_probabilities(tables, 2))
    optimum = capture_value(mdp, solve_concurrent(mdp))
    assert values.max(axis=0) == pytest.approx(optimum, abs=1e-9)
    best = evaluate_policy(mdp, as_probabilities(greedy(mdp, solve_concurrent(mdp)), 2))
    assert best == pytest.approx(optimum, abs=1e-9)


@given(mdp=mdps())
def test_knowing_the_latency_never_hurts(mdp):
    values = []
    for known in (True, False):
        m = ConcurrentMDP(
            mdp.world, mdp.period_ticks, mdp.gamma, mdp.latencies_ticks, mdp.probabilities,
            latency_known=known,
        )  # fmt: skip
        values.append(capture_value(m, solve_concurrent(m)))
    assert (values[0] >= values[1] - 1e-8).all()


# --- The paper's literal operator


@given(mdp=mdps(), seed=st.integers(0, 1000))
def test_choosing_at_the_switch_is_never_better(mdp, seed):
    q, _ = pair_of(mdp.capture_shape, seed)
    ours, literal = full_period_operator(mdp, q), literal_concurrent_operator(mdp, q)
    assert (literal <= ours + 1e-9).all()


@given(mdp=mdps(deterministic=True), seed=st.integers(0, 1000))
def test_choosing_at_the_switch_is_as_good_when_nothing_is_random(mdp, seed):
    mdp = ConcurrentMDP(mdp.world, mdp.period_ticks, mdp.gamma, mdp.latencies_ticks[:1])
    q, _ = pair_of(mdp.capture_shape, seed)
    ours, literal = full_period_operator(mdp, q), literal_concurrent_operator(mdp, q)
    assert literal == pytest.approx(ours)


def test_looking_before_choosing_is_worth_something():
    mdp = ConcurrentMDP(random_world(1), 3, 0.9, (1,))
    q = np.random.default_rng(0).normal(size=mdp.capture_shape)
    gap = full_period_operator(mdp, q) - literal_concurrent_operator(mdp, q)
    assert gap.max() > 0.01


# --- Sufficiency, and what cannot be recovered


def shifted_blocking_value(mdp, latency: int):
    """The first latency with the action in flight, then the blocking optimum: (s, b)."""
    value = solve_blocking(mdp, 1e-11).max(axis=1)
    result = np.empty((mdp.world.states, mdp.world.actions))
    for s, b in itertools.product(range(mdp.world.states), range(mdp.world.actions)):
        stretch = ConcurrentMDP(mdp.world, mdp.period_ticks, mdp.gamma, (latency,))
        g = mdp.gamma ** (1 / mdp.period_ticks)
        distribution, reward = np.eye(mdp.world.states)[s], 0.0
        for tick in range(latency):
            reward += g**tick * float(distribution @ stretch.world.rewards[:, b])
            distribution = distribution @ (stretch.world.transitions[b] @ np.eye(mdp.world.states))
        result[s, b] = reward + g**latency * float(distribution @ value)
    return result


@given(seed=st.integers(0, 10_000), period=st.integers(1, 5), data=st.data())
def test_knowledge_is_sufficient_when_nothing_is_random(seed, period, data):
    """Deterministic dynamics: after the first latency, knowledge loses nothing."""
    latency = data.draw(st.integers(0, period))
    mdp = ConcurrentMDP(random_world(seed, deterministic=True), period, 0.9, (latency,))
    optimum = capture_value(mdp, solve_concurrent(mdp, 1e-11))
    assert optimum == pytest.approx(shifted_blocking_value(mdp, latency), abs=1e-8)


@given(seed=st.integers(0, 10_000), period=st.integers(1, 5), data=st.data())
def test_no_knowledge_recovers_what_chance_decides_during_the_latency(seed, period, data):
    latency = data.draw(st.integers(0, period))
    mdp = ConcurrentMDP(random_world(seed), period, 0.9, (latency,))
    optimum = capture_value(mdp, solve_concurrent(mdp, 1e-11))
    assert (optimum <= shifted_blocking_value(mdp, latency) + 1e-8).all()


def test_chance_does_cost_something():
    mdp = ConcurrentMDP(random_world(3), 3, 0.9, (2,))
    optimum = capture_value(mdp, solve_concurrent(mdp))
    assert (shifted_blocking_value(mdp, 2) - optimum).min() > 0.01


# --- Bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TickMDP([np.eye(2)], np.zeros((2, 2))), "one transition per action"),
        (lambda: TickMDP([np.eye(3)], np.zeros((2, 1))), r"must be \(2, 2\), got \(3, 3\)"),
        (lambda: TickMDP([np.eye(2) * 0.5], np.zeros((2, 1))), "do not sum to 1"),
        (lambda: TickMDP([[[2, -1], [0, 1]]], np.zeros((2, 1))), "negative probabilities"),
        (lambda: ConcurrentMDP(random_world(0), 0, 0.9), "at least one tick"),
        (lambda: ConcurrentMDP(random_world(0), 2, 1.0), "gamma must be"),
        (lambda: ConcurrentMDP(random_world(0), 2, 0.9, (3,)), "from 0 to 2 ticks"),
        (lambda: ConcurrentMDP(random_world(0), 2, 0.9, (0, 1)), "sum to 1, one per latency"),
    ],
)
def test_bad_mdps(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_sparse_and_dense_worlds_agree():
    rng = np.random.default_rng(0)
    states = 60
    dense = []
    for _ in range(2):
        matrix = np.zeros((states, states))
        for s in range(states):
            matrix[s, rng.choice(states, 2, replace=False)] = 0.5
        dense.append(matrix)
    rewards = rng.normal(size=(states, 2))
    sparse = TickMDP(dense, rewards)
    assert not isinstance(sparse.transitions[0], np.ndarray)
    mdp = ConcurrentMDP(sparse, 4, 0.9, (1, 3), (0.5, 0.5))
    ours = solve_concurrent(mdp)
    object.__setattr__(sparse, "transitions", tuple(dense))
    assert solve_concurrent(mdp) == pytest.approx(ours, abs=1e-9)
