"""All intervals and comparisons: of means, of shares, of trainings, of paired draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import DegenerateDataWarning, binomtest, bootstrap, ttest_ind, ttest_rel
from scipy.stats import t as student_t

Array = NDArray[np.floating]

RESAMPLES = 5000
NESTED_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """How one arm does against another on the same draws."""

    arm: str
    other: str
    difference: Estimate  # of mean returns
    improvement: Estimate  # probability that the arm is the better one; a tie counts half


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


def area(values: Array) -> Array:
    """Area under the sorted curve, over the share of trials: the mean."""
    return np.asarray(values.mean(axis=-1))


def better(difference: Array) -> Array:
    """The share of positive differences; zero counts half."""
    return np.asarray(((difference > 0) + 0.5 * (difference == 0)).mean(axis=-1))


def estimate(values: Array, measure: Callable[[Array], Array]) -> Estimate:
    """A measure of values (draws,), with the interval of resampled draws."""
    picks = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(measure(values[picks]), [2.5, 97.5])
    return Estimate(float(measure(values)), float(low), float(high))


def compare(arms: Sequence[str], returns: Array) -> list[Comparison]:
    """Every arm against every later one; the better by mean comes first."""
    found = []
    for i in range(len(arms)):
        for j in range(i + 1, len(arms)):
            first, second = (i, j) if returns[i].mean() >= returns[j].mean() else (j, i)
            difference = returns[first] - returns[second]
            found.append(
                Comparison(
                    arms[first],
                    arms[second],
                    estimate(difference, area),
                    estimate(difference, better),
                )
            )
    return found


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


# --- Intervals ------------------------------------------------------------------------------------


def share_interval(successes: Sequence[float] | NDArray[np.floating]) -> tuple[float, float]:
    """The 95 % interval (Wilson) of a share, from zeros and ones: also where all are the same."""
    array = np.asarray(successes, float)
    found = binomtest(int(array.sum()), len(array)).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def nested_interval(
    groups: Sequence[Sequence[float]], others: Sequence[Sequence[float]] | None = None
) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean over groups of episodes, one per training.

    Trainings are drawn, then episodes of each: both vary. With `others`, of the difference of
    the means. With few trainings it is narrower than it should be: look at each of them too.
    """
    rng = np.random.default_rng(0)

    def means(groups: Sequence[Sequence[float]]) -> NDArray[np.floating]:
        arrays = [np.asarray(group, float) for group in groups]
        found = np.zeros(NESTED_RESAMPLES)
        for k in range(NESTED_RESAMPLES):
            drawn = [arrays[i] for i in rng.integers(len(arrays), size=len(arrays))]
            found[k] = np.mean([a[rng.integers(len(a), size=len(a))].mean() for a in drawn])
        return found

    found = means(groups) if others is None else means(groups) - means(others)
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def interval(values: Sequence[float] | NDArray[np.floating]) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean."""
    array = np.asarray(values, float)
    if len(array) < 2 or np.ptp(array) == 0:
        return float(array.mean()), float(array.mean())
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        found = bootstrap((array,), np.mean, n_resamples=2000, rng=np.random.default_rng(0))
    low, high = found.confidence_interval
    if not np.isfinite([low, high]).all():  # they differ by rounding only: there is no spread
        return float(array.min()), float(array.max())
    return float(low), float(high)


def half_width(values: NDArray[np.floating]) -> float:
    """Half the 95 % interval of the mean."""
    n = len(values)
    if n < 2:
        return float("nan")
    return float(student_t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))


def welch(first: NDArray[np.floating], second: NDArray[np.floating]) -> tuple[float, float]:
    """The difference of two means, and half its 95 % interval, whatever the two variances are."""
    means = float(first.mean() - second.mean())
    parts = [values.var(ddof=1) / len(values) for values in (first, second)]
    if sum(parts) == 0:
        return means, 0.0
    below = sum(p**2 / (len(v) - 1) for p, v in zip(parts, (first, second), strict=True))
    return means, float(student_t.ppf(0.975, sum(parts) ** 2 / below) * np.sqrt(sum(parts)))


def is_above(first: Array, second: Array, paired: bool) -> float:
    """How probable so large a difference were if the first mean were not above the second.

    Welch's t of two samples; Student's of their differences if they are pairs. nan of too few.
    """
    if min(len(first), len(second)) < 2:
        return float("nan")
    if np.ptp(first) == 0 and np.ptp(second) == 0:  # no spread to divide by
        return 0.0 if np.mean(first) > np.mean(second) else 1.0
    if paired:
        return float(ttest_rel(first, second, alternative="greater").pvalue)
    return float(ttest_ind(first, second, equal_var=False, alternative="greater").pvalue)


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


@cache
def _t_quantile(alpha: float, freedom: int) -> float:
    return float(student_t.isf(alpha, freedom))
