"""All intervals and comparisons: one method, Student's t, and the few places where it cannot be.

What varies from training to training is what a comparison of trainings is about: a training counts
as one number, the mean of its episodes, and intervals are Student's t over these (Welch's for a
difference; of paired draws, Student's of the differences). Episodes of several trainings are never
pooled. Several comparisons are corrected together (Holm). Two questions about the *episodes* of one
policy have answers of their own, because t has no width where all episodes are alike: a share of
successes (Wilson) and whether a mean is above 0 (`is_positive`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.stats import binomtest, ttest_ind, ttest_rel
from scipy.stats import t as student_t

Array = NDArray[np.floating]
ALPHA = 0.05  # of all comparisons that are made together


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval; the ends are nan where there is too little to tell."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    def scaled(self, factor: float) -> Estimate:
        """In another unit."""
        return Estimate(factor * self.value, factor * self.low, factor * self.high)


# --- Trainings ------------------------------------------------------------------------------------


def mean_of(values: ArrayLike) -> Estimate:
    """Of independent values, one for each training: Student's t."""
    array = np.asarray(values, float)
    with np.errstate(all="ignore"):  # of numbers as large as there are
        return _around(float(array.mean()), _error(array), len(array) - 1)


def difference_of(first: ArrayLike, second: ArrayLike) -> Estimate:
    """How much more the first mean is than the second, whatever the two variances: Welch's t."""
    a, b = np.asarray(first, float), np.asarray(second, float)
    value = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(value, np.nan, np.nan)
    parts = [_error(a) ** 2, _error(b) ** 2]
    below = parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1)
    freedom = sum(parts) ** 2 / below if below > 0 else np.inf
    return _around(value, float(np.sqrt(sum(parts))), freedom)


def paired_difference(first: ArrayLike, second: ArrayLike) -> Estimate:
    """How much more the first is, pair by pair: Student's t of the differences."""
    return mean_of(np.asarray(first, float) - np.asarray(second, float))


def half_width(values: ArrayLike) -> float:
    """Half the 95 % interval of the mean."""
    return mean_of(values).half


def _error(array: Array) -> float:
    """The standard error of a mean; nan of a single value."""
    return float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else float("nan")


def _around(value: float, error: float, freedom: float) -> Estimate:
    if not error > 0:  # no spread, or unknown
        return Estimate(value, value + error, value + error)
    half = _t_quantile(0.025, freedom) * error
    return Estimate(value, value - half, value + half)


@cache
def _t_quantile(alpha: float, freedom: float) -> float:
    return float(student_t.isf(alpha, freedom))


# --- Comparisons ----------------------------------------------------------------------------------


def is_above(first: Array, second: Array, paired: bool) -> float:
    """How probable so large a difference were if the first mean were not above the second.

    Welch's t of two samples; Student's of their differences if they are pairs. nan of too few.
    """
    return _p_value(first, second, paired, "greater")


def differs(first: Array, second: Array, paired: bool) -> float:
    """How probable a difference so far from 0, to either side, were if there were none."""
    return _p_value(first, second, paired, "two-sided")


def _p_value(
    first: Array, second: Array, paired: bool, side: Literal["greater", "two-sided"]
) -> float:
    if min(len(first), len(second)) < 2:
        return float("nan")
    between = np.asarray(first) - np.asarray(second) if paired else None
    spreads = (between,) if between is not None else (first, second)
    if all(np.ptp(values) == 0 for values in spreads):  # no spread to divide by
        difference = float(np.mean(first) - np.mean(second))
        return 0.0 if difference > 0 or (side == "two-sided" and difference != 0) else 1.0
    with warnings.catch_warnings():  # values that differ by rounding only are told apart by it
        warnings.filterwarnings("ignore", message="Precision loss occurred")
        if paired:
            return float(ttest_rel(first, second, alternative=side).pvalue)
        return float(ttest_ind(first, second, equal_var=False, alternative=side).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Probabilities of several comparisons, each made larger for there being others (Holm, 1979).

    Where one is unknown (nan), it counts and stays so.
    """
    p = np.asarray(p_values, float)
    order = np.argsort(np.where(np.isnan(p), np.inf, p), kind="stable")
    found, least = np.full(len(p), np.nan), 0.0
    for rank, i in enumerate(order):
        if not np.isnan(p[i]):
            least = max(least, min(1.0, (len(p) - rank) * p[i]))
            found[i] = least
    return found.tolist()


def recovers(difference: Estimate, margin: float) -> Literal["yes", "no", "not decided"]:
    """Whether what is compared is at most `margin` below, as far as the interval says."""
    if difference.low > -margin:
        return "yes"
    return "no" if difference.high < -margin else "not decided"


@dataclass(frozen=True)
class Comparison:
    """How one arm does against another on the same draws."""

    arm: str
    other: str
    difference: Estimate  # of mean returns, within pairs
    better: float  # share of the draws in which the arm is the better one; a tie counts half
    p: float  # two-sided, by Student's t of the differences
    p_holm: float  # the same, for all comparisons that are made together

    @property
    def verdict(self) -> Literal["more", "less", "no difference shown"]:
        if not self.p_holm <= ALPHA:
            return "no difference shown"
        return "more" if self.difference.value > 0 else "less"


def compare(pairs: Sequence[tuple[str, str]], returns: Mapping[str, Array]) -> list[Comparison]:
    """Arms against others on the same draws; all comparisons are corrected together."""
    p_values = [differs(returns[a], returns[b], paired=True) for a, b in pairs]
    found = []
    for (a, b), p, p_holm in zip(pairs, p_values, holm(p_values), strict=True):
        difference = returns[a] - returns[b]
        better = float(((difference > 0) + 0.5 * (difference == 0)).mean())
        found.append(Comparison(a, b, mean_of(difference), better, p, p_holm))
    return found


def detectable(differences: Array, comparisons: int = 1, power: float = 0.8) -> float:
    """The difference that as many pairs with this spread would show, with a chance of `power`.

    At the strictest step of Holm's correction for so many comparisons.
    """
    if len(differences) < 2:
        return float("nan")
    freedom = len(differences) - 1
    strict = _t_quantile(ALPHA / 2 / comparisons, freedom) + _t_quantile(1 - power, freedom)
    return strict * _error(np.asarray(differences, float))


# --- Episodes of one policy -----------------------------------------------------------------------


def interval(values: ArrayLike) -> tuple[float, float]:
    """The 95 % interval of the mean of one policy's episodes; of a single one, itself."""
    found = mean_of(values)
    return (found.low, found.high) if np.isfinite(found.half) else (found.value, found.value)


def share_interval(successes: ArrayLike) -> tuple[float, float]:
    """The 95 % interval (Wilson) of a share of one policy's episodes, from zeros and ones.

    It has a width also where all are the same, as Student's t has not.
    """
    array = np.asarray(successes, float)
    found = binomtest(int(array.sum()), len(array)).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def is_positive(values: NDArray[np.floating], low: float, alpha: float) -> bool:
    """Whether the mean is above 0, with at most `alpha` (one-sided) to be wrong.

    The empirical likelihood ratio of the mean being 0, with half an observation at `low`, the least
    that a value can be: so that twenty successes do not prove that there are no failures, which
    Student's t would take them to. Its signed root is held against Student's t, for small samples
    (Owen, Empirical Likelihood, 2001, sections 3.3 and 4.10).
    """
    array = np.asarray(values, float)
    n = len(array)
    if n < 2 or array.mean() <= 0:
        return False
    low = min(low, float(array.min()))
    if low >= 0:
        return True
    points = np.append(array, low) / -low  # the last is -1: the multiplier stays below 1
    weights = np.append(np.ones(n), 0.5)

    def slope(multiplier: float) -> float:
        return float((weights * points / (1 + multiplier * points)).sum())

    if slope(0.0) <= 0:
        return False
    best = brentq(slope, 0.0, 1 - 1e-12)
    ratio = 2 * float((weights * np.log1p(best * points)).sum())
    return bool(np.sqrt(ratio) > _t_quantile(alpha, n - 1))


# --- Sweeps ---------------------------------------------------------------------------------------


def by_arm(rows: Sequence[Mapping[str, str]]) -> dict[str, dict[int, float]]:
    """Returns of finished trials: arm -> draw -> mean return."""
    found: dict[str, dict[int, float]] = {row["arm"]: {} for row in rows}
    for row in rows:
        if row["status"] == "done":
            found[row["arm"]][int(row["draw"])] = float(row["mean_return"])
    return found


def paired(returns: Mapping[str, Mapping[int, float]]) -> tuple[list[int], Array]:
    """Draws that are finished in every arm, and their returns (arms, draws)."""
    draws = sorted(set.intersection(*(set(of_arm) for of_arm in returns.values())))
    return draws, np.array([[of_arm[i] for i in draws] for of_arm in returns.values()])


def iqm(values: Array) -> Array:
    """The mean of the middle half along the last axis, robust to a few lucky or broken trials."""
    ordered = np.sort(values, axis=-1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1))


def groups(values: Sequence[str], most: int = 6) -> tuple[list[str], NDArray[Any]]:
    """Values of a hyperparameter as a few groups: their labels, and the group of each value.

    Numbers with many values are cut into quarters.
    """
    distinct = sorted(set(values), key=_order)
    if len(distinct) <= most:
        return distinct, np.array([distinct.index(value) for value in values])
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        return distinct, np.array([distinct.index(value) for value in values])
    edges = np.quantile(numbers, [0.25, 0.5, 0.75])
    bounds = [numbers.min(), *edges, numbers.max()]
    labels = [f"{bounds[k]:.2g}-{bounds[k + 1]:.2g}" for k in range(4)]
    return labels, np.searchsorted(edges, numbers)


def _order(text: str) -> tuple[int, float, str]:
    """Numbers and times by size, then everything else."""
    try:
        return 0, float(text.removesuffix("ms").split(" ")[0]), text
    except ValueError:
        return 1, 0.0, text
