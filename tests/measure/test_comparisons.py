"""Comparisons of trainings, against tables and by hand."""

import numpy as np
import pytest

from midstride.measure.statistics import holm, is_above


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
    assert is_above(second, first, paired=False) > 0.9
    assert is_above(first, np.array([8.0, 7.0]), paired=True) == pytest.approx(
        0.5 - np.arctan(5 / 3) / np.pi
    )  # differences 1 and 4: t_1 = 2.5 / 1.5
    assert np.isnan(is_above(first[:1], second, paired=False))
    assert is_above(np.ones(3), np.zeros(3), paired=False) == 0
