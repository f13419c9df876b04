"""Intervals and comparisons of trainings: against tables, by hand, and by simulation."""

import csv
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from midstride.measure.statistics import (
    Estimate,
    difference_of,
    differs,
    holm,
    is_above,
    mean_of,
    paired_difference,
    recovers,
)

RESULTS = Path(__file__).parents[2] / "results"
TRAININGS = (3, 8, 32)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    found = holm([0.01, float("nan")])
    assert found[0] == 0.02
    assert np.isnan(found[1])


def test_welch_and_pairs_by_hand():
    """t = 4 / sqrt(1 + 1) with 2 freedoms; of pairs, t = 4 / 0 is certain."""
    first, second = np.array([9.0, 11.0]), np.array([5.0, 7.0])
    # P(t_2 > x) = (1 - x / sqrt(x^2 + 2)) / 2
    x = 4 / np.sqrt(2)
    assert is_above(first, second, paired=False) == pytest.approx((1 - x / np.sqrt(x**2 + 2)) / 2)
    assert differs(second, first, paired=False) == pytest.approx(1 - x / np.sqrt(x**2 + 2))
    assert is_above(second, first, paired=False) > 0.9
    assert is_above(first, np.array([8.0, 7.0]), paired=True) == pytest.approx(
        0.5 - np.arctan(5 / 3) / np.pi
    )  # differences 1 and 4: t_1 = 2.5 / 1.5
    assert np.isnan(is_above(first[:1], second, paired=False))
    assert is_above(np.ones(3), np.zeros(3), paired=False) == 0
    assert is_above(second, first, paired=True) == 1
    assert differs(second, first, paired=True) == 0
    assert differs(first, first, paired=True) == 1


def test_intervals_by_hand():
    """Of 1, 2, 3: 2 +- 4.3027 / sqrt(3); of one value nothing is known."""
    found = mean_of([1, 2, 3])
    assert (found.value, found.half) == (2, pytest.approx(4.302653 / np.sqrt(3), rel=1e-6))
    assert np.isnan(mean_of([1.0]).low)
    assert np.isnan(difference_of([1.0], [1.0, 2.0]).low)
    # Equal variances and sizes: freedoms add up to 4, t = 2.776445
    found = difference_of([1, 2, 3], [5, 6, 7])
    assert (found.value, found.half) == (-4, pytest.approx(2.776445 * np.sqrt(2 / 3), rel=1e-6))
    assert paired_difference([3, 5, 7], [2, 3, 4]) == mean_of([1, 2, 3])


def test_recovering_is_decided_by_the_interval_alone():
    assert recovers(Estimate(-1, -2.9, 0.9), 3) == "yes"
    assert recovers(Estimate(-1, -3.1, 1.1), 3) == "not decided"
    assert recovers(Estimate(-6, -8, -3.5), 3) == "no"
    assert recovers(Estimate(-1, np.nan, np.nan), 3) == "not decided"


# --- Coverage: how often a 95 % interval holds the truth


def success_shares(rng, trainings):
    """Trainings that differ, each judged by 320 episodes: the mean of all of them is 0.9."""
    chances = np.clip(rng.normal(0.9, 0.02, trainings), 0, 1)
    return rng.binomial(320, chances) / 320


def pairs(rng, draws):
    """What is common to a pair is large, what differs is small."""
    common = rng.normal(0, 5, draws)
    return common + rng.normal(0, 1, draws), common + rng.normal(0, 1, draws)


CASES = {
    "mean": lambda rng, n: mean_of(rng.normal(0, 1, n)),
    "difference": lambda rng, n: difference_of(rng.normal(0, 1, n), rng.normal(0, 3, n)),
    "unequal": lambda rng, n: difference_of(rng.normal(0, 1, 8), rng.normal(0, 1, n)),
    "pairs": lambda rng, n: paired_difference(*pairs(rng, n)),
    "shares": lambda rng, n: difference_of(success_shares(rng, n), success_shares(rng, n)),
}  # fmt: skip


def coverage(case, trainings, times):
    rng = np.random.default_rng(trainings)
    found = [CASES[case](rng, trainings) for _ in range(times)]
    return np.mean([one.low <= 0 <= one.high for one in found])


@pytest.mark.parametrize(("case", "trainings"), [*product(CASES, TRAININGS)])
def test_intervals_hold_the_truth_as_often_as_they_say(case, trainings):
    """2000 times: the share that is found is within 0.5 % of its own, one time in three."""
    assert 0.93 <= coverage(case, trainings, 2000) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("case", "trainings"), [*product(CASES, TRAININGS)])
def test_intervals_hold_the_truth_as_often_as_they_say_exactly(case, trainings):
    assert 0.94 <= coverage(case, trainings, 20_000) <= 0.97


@pytest.mark.parametrize("figure", ["figure2a-shared", "figure2b-steps"])
def test_intervals_of_sweeps_hold_the_truth(figure):
    """Draws are no normal distribution: differences drawn again from those of our own sweeps."""
    with (RESULTS / figure / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    returns = {a: [float(r["mean_return"]) for r in rows if r["arm"] == a] for a in arms}
    rng = np.random.default_rng(0)
    for arm in arms[1:]:
        every = np.array(returns[arm]) - np.array(returns[arms[0]])
        found = [mean_of(rng.choice(every, 36)) for _ in range(2000)]
        share = np.mean([one.low <= every.mean() <= one.high for one in found])
        assert 0.92 <= share <= 0.97, arm


def test_t_of_pairs_agrees_with_flipping_their_signs():
    """All 2^12 ways in which 12 differences could have had their signs, if there were no effect."""
    rng = np.random.default_rng(3)
    signs = 1 - 2 * (np.arange(2**12)[:, None] >> np.arange(12) & 1)
    for shift in (0.0, 0.5, 1.0):
        values = rng.normal(shift, 1, 12)
        flipped = np.abs((signs * values).mean(axis=1))
        exact = float((flipped >= abs(values.mean()) - 1e-12).mean())
        assert differs(values, np.zeros(12), paired=True) == pytest.approx(exact, abs=0.03)
