"""The search for a margin, in simulated policies whose margin is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from midstride.measure.search import search
from midstride.measure.statistics import is_positive

SHARE, LEVELS, EPISODES, REPETITIONS = 0.9, 60, 64, 200
LEVEL = np.arange(LEVELS + 1)


def slope(rng):
    """The return falls with the level; episodes differ, and so do levels."""
    noise = 30 * rng.normal(size=EPISODES) + 60 * rng.normal(size=(LEVELS + 1, EPISODES))
    return 1002 - 4 * LEVEL[:, None] + noise, 1002 - 4.0 * LEVEL


def heavy_tails(rng):
    """The same, with noise of which a variance hardly exists (Student's t, 3 degrees)."""
    noise = 60 * rng.standard_t(3, size=(LEVELS + 1, EPISODES))
    return 1002 - 4 * LEVEL[:, None] + noise, 1002 - 4.0 * LEVEL


def each_its_own_cliff(rng):
    """Every episode falls, at a level of its own: the returns are all or next to nothing."""
    cliffs = rng.normal(30, 8, size=EPISODES)
    mean = 1000 - 980 * norm.cdf(LEVEL, 30, 8)
    return np.where(LEVEL[:, None] <= cliffs, 1000.0, 20.0), mean


def rare_falls(rng):
    """Falls become likelier with the level, in no episode more than in another."""
    falls = 0.005 * LEVEL
    found = rng.random((LEVELS + 1, EPISODES)) < falls[:, None]
    return np.where(found, 20.0, 1000.0), 1000 - 980 * falls


def success(rng):
    """Zeros and ones."""
    share = 0.95 * (1 - norm.cdf(LEVEL, 40, 12))
    return (rng.random((LEVELS + 1, EPISODES)) < share[:, None]).astype(float), share


def cliff(rng):
    noise = 10 * rng.normal(size=(LEVELS + 1, EPISODES))
    mean = np.where(LEVEL <= 17, 1000.0, 20.0)
    return mean[:, None] + noise, mean


def known_margin(mean):
    below = np.flatnonzero(mean < SHARE * mean[0])
    return int(below[0]) - 1 if len(below) else LEVELS


def found_in(values):
    def gains(level, episodes):
        return (values[level] - SHARE * values[0])[episodes.start : episodes.stop]

    return search(gains, LEVELS, EPISODES, worst=-SHARE * values[0].mean())


# Where the curve is nearly straight the interval is wider than it need be: over other seeds it
# covers in 98 to 99.5 %.
CAUTIOUS = (slope, heavy_tails)


@pytest.mark.parametrize("shape", [slope, heavy_tails, each_its_own_cliff, rare_falls, success])
def test_the_interval_covers_the_margin_as_often_as_it_says(shape):
    covered = 0
    for repetition in range(REPETITIONS):
        values, mean = shape(np.random.default_rng([repetition, 7]))
        found = found_in(values)
        assert found.low <= found.margin
        assert found.high is None or found.margin <= found.high
        high = LEVELS if found.high is None else found.high
        covered += found.low <= known_margin(mean) <= high
    assert covered / REPETITIONS >= 0.90
    if shape not in CAUTIOUS:
        assert covered / REPETITIONS <= 0.98


def test_a_cliff_is_found_exactly_and_with_few_episodes():
    """Where nothing is uncertain the interval is one level, and cannot miss."""
    for repetition in range(20):
        values, mean = cliff(np.random.default_rng(repetition))
        found = found_in(values)
        assert (found.low, found.margin, found.high) == (17, 17, 17) == (known_margin(mean),) * 3
        assert found.episodes < 0.15 * LEVELS * EPISODES


def test_the_first_crossing_counts_and_a_recovery_is_said():
    mean = np.where(LEVEL <= 4, 1000.0, np.where(LEVEL < 12, 100.0, 950.0))
    found = found_in(mean[:, None] + np.random.default_rng(0).normal(size=(LEVELS + 1, EPISODES)))
    assert (found.low, found.margin, found.high) == (4, 4, 4)
    assert set(found.recovers) == {16, 32, 60}
    assert not found.beyond


def test_beyond_the_highest_level():
    found = found_in(np.full((LEVELS + 1, EPISODES), 500.0))
    assert (found.low, found.margin, found.high, found.beyond) == (LEVELS, LEVELS, None, True)


def test_nothing_is_stood():
    mean = np.where(LEVEL == 0, 1000.0, 0.0)
    found = found_in(np.repeat(mean[:, None], EPISODES, axis=1))
    assert (found.low, found.margin, found.high) == (0, 0, 0)


@given(st.integers(0, LEVELS - 1), st.integers(8, 64), st.floats(0.0, 0.89))
def test_a_cliff_anywhere_of_any_depth(at, episodes, left):
    """Without noise: the level itself, and beyond doubt where the fall is deep."""
    mean = np.where(at >= LEVEL, 1.0, left)
    found = search(
        lambda level, some: np.full(len(some), mean[level] - SHARE), LEVELS, episodes, -SHARE
    )
    assert found.margin == at
    assert found.high is None or found.high >= at
    if left < 0.7 and episodes >= 16 and at < 0.9 * LEVELS:  # there the end is near enough
        assert found.high == at
    assert found.low <= at


def test_the_same_episodes_are_asked_for_at_every_level_once():
    asked: dict[int, list[int]] = {}
    values, _ = slope(np.random.default_rng(0))

    def gains(level, episodes):
        asked.setdefault(level, []).extend(episodes)
        return (values[level] - SHARE * values[0])[episodes.start : episodes.stop]

    search(gains, LEVELS, EPISODES, -900.0)
    assert all(numbers == list(range(len(numbers))) for numbers in asked.values())


def test_successes_alone_do_not_prove_that_there_are_no_failures():
    """Student's t takes twenty equal values for certainty. The chance of 20 successes is 12 % where
    one in ten fails, of 45 it is 0.9 %."""
    gain, loss = 0.1, -0.9
    assert not is_positive(np.full(20, gain), loss, 0.025)
    assert is_positive(np.full(45, gain), loss, 0.025)
    assert is_positive(np.full(5, gain), 0.05, 0.025)  # nothing can be lost
    assert not is_positive(np.array([0.1, 0.1, -0.9]), loss, 0.025)


def test_it_errs_as_often_as_it_may():
    """Means of 0: normal ones, and one in ten that fails."""
    rng = np.random.default_rng(0)
    normal = np.mean([is_positive(rng.normal(size=40), -3.0, 0.05) for _ in range(2000)])
    assert 0.02 < normal < 0.06
    falls = [
        is_positive(np.where(rng.random(80) < 0.1, -0.9, 0.1), -0.9, 0.05) for _ in range(2000)
    ]
    assert 0.005 < np.mean(falls) < 0.07


def test_too_few():
    with pytest.raises(ValueError, match="at least 2 episodes"):
        search(lambda level, some: np.zeros(len(some)), 4, 1, -1.0)
    with pytest.raises(ValueError, match="a level to try"):
        search(lambda level, some: np.zeros(len(some)), 0, 8, -1.0)
