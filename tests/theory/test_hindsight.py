"""What latency costs and when relabelling is wrong: exact, and met by experiments."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.theory.hindsight import (
    Frozen,
    as_relabelled,
    at_switch,
    best_by_reading,
    counted,
    delayed,
    distilled,
    greedy,
    learned,
    live,
    losses,
    nearly_greedy,
    paid_until_switch,
)
from midstride.theory.knowledge import turntable
from midstride.theory.tabular import ConcurrentMDP, capture_value, solve_concurrent


def random_world(seed, states=5, actions=3, deterministic=False):
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.full(states, 0.4), (states, actions))
    if deterministic:
        moves = np.eye(states)[rng.integers(states, size=(states, actions))]
    return Frozen(rng.normal(size=(states, actions)), moves, 0.8)


def slipping(slip):
    return Frozen.of(ConcurrentMDP(turntable(slip), period_ticks=3, gamma=0.9))


@given(seed=st.integers(0, 10**6), k=st.integers(1, 3))
def test_nothing_is_lost_after_the_first_latency_where_nothing_is_random(seed, k):
    found = losses(random_world(seed, deterministic=True), k, epsilon=0.2)
    for value in vars(found).values():
        assert value == pytest.approx(found.frozen, abs=1e-8)


@given(seed=st.integers(0, 10**6), k=st.integers(1, 2))
def test_what_chance_takes_is_never_negative_and_the_student_pays_no_less(seed, k):
    found = losses(random_world(seed), k, epsilon=0.3)
    assert found.best <= found.frozen + 1e-8
    assert found.distilled <= found.best + 1e-8
    assert found.relabelled <= found.best + 1e-8


@given(seed=st.integers(0, 10**6), k=st.integers(1, 2))
def test_relabelling_is_right_where_the_behaviour_did_not_look(seed, k):
    world = random_world(seed)
    blind = np.tile(np.random.default_rng(seed).dirichlet(np.ones(3)), (world.states, 1))
    true, seen = delayed(world, k), as_relabelled(world, k, blind)
    np.testing.assert_allclose(seen.transitions, true.transitions, atol=1e-12)


def test_relabelling_is_wrong_where_it_did_and_something_is_random():
    world = slipping(0.3)
    behaviour = nearly_greedy(world.best(), 0.1)
    away = as_relabelled(world, 1, behaviour).transitions - delayed(world, 1).transitions
    assert np.abs(away).max() > 0.2
    found = losses(slipping(0.1), 2, 0.1)
    assert found.relabelled < found.best - 1  # it bites
    assert found.believed > found.frozen + 1  # it believes what no policy can have


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_one_period_is_the_concurrent_mdp_of_that_latency(seed):
    """Against the operators of `tabular`, which know of ticks, not of lines."""
    slip = np.random.default_rng(seed).uniform(0, 0.6)
    mdp = ConcurrentMDP(turntable(slip), 3, 0.9, latencies_ticks=(3,))
    exact = capture_value(mdp, solve_concurrent(mdp))  # (s, b)
    found = delayed(Frozen.of(mdp), 1).best().max(axis=1)
    np.testing.assert_allclose(found.reshape(2, 4).T, exact, atol=1e-8)


def test_switch_and_reward_until_then_by_hand():
    """Two cells, action 1 swaps them; 1 is paid in cell 0, whatever is done."""
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    world = Frozen(
        np.array([[1.0, 1.0], [0.0, 0.0]]), np.stack([np.eye(2), swap], axis=1), gamma=0.5
    )
    assert world.lines(2) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert at_switch(world, 2).argmax(axis=1).tolist() == [0, 1, 1, 0, 1, 0, 0, 1]
    assert paid_until_switch(world, 2).tolist() == [1.5, 0, 1.5, 0, 1, 0.5, 1, 0.5]
    expert = np.array([[1.0, 0.0], [0.0, 1.0]])  # swap in cell 1
    assert distilled(world, 2, expert)[:, 1].tolist() == [0, 1, 1, 0, 1, 0, 0, 1]


def test_the_experiment_meets_what_is_predicted():
    """A life in the frozen world, relabelled and counted: by Bayes, and not the true world."""
    world, k = slipping(0.3), 1
    behaviour = nearly_greedy(world.best(), 0.3)
    states, actions = live(world, behaviour, 60_000, np.random.default_rng(0))
    counts = counted(world, k, states, actions)
    total = counts.sum(axis=2)
    seen, true = as_relabelled(world, k, behaviour), delayed(world, k)
    # the moves of s alone, whatever joins the line: (x, a, s')
    shape = (*total.shape, len(world.lines(k)), world.states)
    seen_s, true_s = (one.transitions.reshape(shape).sum(axis=2) for one in (seen, true))
    for x, a in np.argwhere(total > 200):
        share = counts[x, a] / total[x, a]
        error = np.sqrt(seen_s[x, a] * (1 - seen_s[x, a]) / total[x, a])
        assert (np.abs(share - seen_s[x, a]) < 5 * error + 1e-12).all()
    error = np.sqrt(np.maximum(true_s * (1 - true_s), 1e-12) / np.maximum(total, 1)[..., None])
    away = np.abs(counts / np.maximum(total, 1)[..., None] - true_s) / error
    turning, staying = away[world.states :], away[: world.states]
    assert turning[total[world.states :] > 200].max() > 10
    assert staying[total[: world.states] > 200].max() < 5  # nothing is random there
    # What Q-learning comes to on these data is what was predicted of it.
    q, expected = learned(world, k, counts), seen.best()
    tried = total > 200
    # An estimate of a mean from m draws of values that span d is off by d / 2 sqrt(m) at most,
    # and an error in every backup adds up to 1 / (1 - gamma) of it.
    span = expected.max() - expected.min()
    bound = 4 * span / (2 * np.sqrt(total[tried].min())) / (1 - world.gamma)
    assert np.abs(q - expected)[tried].max() < bound
    assert q.max(axis=1).mean() > true.best().max(axis=1).mean() + 1


def test_a_random_life_teaches_the_true_world():
    """The same experiment where nobody looked: unbiased though the world is random."""
    world, k = slipping(0.3), 1
    blind = np.full((world.states, world.actions), 0.5)
    states, actions = live(world, blind, 60_000, np.random.default_rng(1))
    counts = counted(world, k, states, actions)
    late = delayed(world, k)
    q = learned(world, k, counts)
    total = counts.sum(axis=2)
    assert total.min() > 500
    exact = late.best()
    bound = 4 * (exact.max() - exact.min()) / (2 * np.sqrt(total.min())) / (1 - world.gamma)
    assert np.abs(q - exact).max() < bound
    assert late.value(greedy(q)).mean() == pytest.approx(exact.max(axis=1).mean(), abs=0.1)


def test_an_old_reading_carried_forward_is_as_good_as_a_new_one():
    """Noise in the sensor alone costs a policy without memory nothing; with slips it does."""
    sensor = 0.9 * np.eye(4) + 0.1 / 3 * (1 - np.eye(4))
    sure, slips = slipping(0.0), slipping(0.1)
    assert best_by_reading(sure, sensor, 1) >= best_by_reading(sure, sensor, 0) - 1e-8
    assert best_by_reading(slips, sensor, 1) < best_by_reading(slips, sensor, 0) - 1
    perfect = best_by_reading(slips, np.eye(4), 1)
    assert perfect == pytest.approx(losses(slips, 1, 0.1).best, abs=1e-8)


def test_a_latency_has_a_period():
    with pytest.raises(ValueError, match="at least one period, got 0"):
        delayed(slipping(0.0), 0)


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_a_later_reading_tells_what_the_earlier_did_not(wrong):
    """Nothing slips, readings err: a decision at the switch tells of the state at the capture.

    An agent at the latency decides on the reading and what is in force, so that its decision
    tells nothing more of where the table is. The one that acted had another look.
    """
    world, rng = slipping(0.0), np.random.default_rng(2)
    sensor = (1 - wrong) * np.eye(4) + wrong / 3 * (1 - np.eye(4))
    by_reading = nearly_greedy(world.best(), 0.3)
    states, actions = live(world, sensor @ by_reading, 20_000, rng)
    # readings, given where the table was and what was done on them: by Bayes
    weight = sensor[:, :, None] * by_reading
    weight /= weight.sum(axis=1, keepdims=True)
    cumulative = weight[states[:-1], :, actions].cumsum(axis=1)
    readings = (rng.random((len(actions), 1)) > cumulative).sum(axis=1)
    far = 0.0
    for reading in range(4):
        here = (readings[:-1] == reading) & (actions[:-1] == 1)
        true = (states[:-2] == reading)[here]  # whether the earlier reading was right
        groups = [true[actions[1:][here] == decision] for decision in (0, 1)]
        spread = sum(max(g.var(), 1e-9) / len(g) for g in groups)
        far = max(far, abs(groups[0].mean() - groups[1].mean()) / np.sqrt(spread))
    assert far > 10 if wrong else far < 1e-9
