"""Finding a margin: episodes against a plain grid of the same precision, and seconds."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.figures import Figure, seconds
from midstride.measure.margin import MarginSettings, margin
from midstride.measure.search import ALPHA, search
from midstride.measure.statistics import is_positive

LEVELS, EPISODES, REPETITIONS, SHARE = 100, 80, 30, 0.9
Array = NDArray[np.float64]


def run() -> list[Figure]:
    ratios = {name: _ratio(shape) for name, shape in SHAPES.items()}
    took = np.median([seconds(_inverted_pendulum) for _ in range(3)])
    grid = f"a grid of {LEVELS} latencies whose interval is no narrower"
    about = "delay margin of a linear feedback, InvertedPendulum-v5, one process"
    return [
        *(Figure(f"margin/episodes-vs-grid ({n})", r, "x", grid) for n, r in ratios.items()),
        Figure("margin/seconds", float(took), "s", about),
    ]


# --- Simulated policies --------------------------------------------------------------------------


def _slope(rng: np.random.Generator) -> Array:
    return 1002 - 4 * np.arange(LEVELS + 1)[:, None] + 60 * rng.normal(size=(LEVELS + 1, EPISODES))


def _cliffs(rng: np.random.Generator) -> Array:
    """Every episode falls at a latency of its own."""
    return np.where(np.arange(LEVELS + 1)[:, None] <= rng.normal(40, 8, EPISODES), 1000.0, 20.0)


def _success(rng: np.random.Generator) -> Array:
    share = 0.95 * norm.sf(np.arange(LEVELS + 1), 60, 15)
    return (rng.random((LEVELS + 1, EPISODES)) < share[:, None]).astype(float)


SHAPES: dict[str, Callable[[np.random.Generator], Array]] = {
    "slope": _slope, "cliffs": _cliffs, "success": _success,
}  # fmt: skip


def _ratio(shape: Callable[[np.random.Generator], Array]) -> float:
    """Episodes of the grid over those of the search, level 0 counted in both.

    The grid has as many episodes at each level as make its mean interval as narrow as the
    search's, judged by the same test.
    """
    spent, widths, tables = [], [], []
    for repetition in range(REPETITIONS):
        values = shape(np.random.default_rng(repetition))
        gains = values - SHARE * values[0]
        worst = -SHARE * float(values[0].mean())
        found = search(lambda k, e, g=gains: g[k, e.start : e.stop], LEVELS, EPISODES, worst)  # type: ignore[misc]
        spent.append(sum(map(len, found.gains.values())))
        widths.append((LEVELS if found.high is None else found.high) - found.low)
        tables.append((gains, worst))
    for episodes in range(8, EPISODES, 4):
        if np.mean([_grid_width(g[:, :episodes], w) for g, w in tables]) <= np.mean(widths):
            return (LEVELS + 1) * episodes / float(np.mean(spent))
    return (LEVELS + 1) * EPISODES / float(np.mean(spent))  # at least


def _grid_width(gains: Array, worst: float) -> int:
    """Of a plain grid's interval: from the last sure to keep to the first sure to fail."""
    means = gains.mean(axis=1)
    failing = np.flatnonzero(means < 0)
    top = int(failing[0]) if len(failing) else LEVELS
    near = gains[: top + 1]
    low = min(float(near.min()), worst) if near.min() >= 0 else float(near.min())
    keeps = [k for k in range(1, top) if is_positive(gains[k], low, ALPHA)]
    fails = [k for k in range(top, LEVELS + 1) if is_positive(-gains[k], -near.max(), ALPHA)]
    return (fails[0] - 1 if fails else LEVELS) - (keeps[-1] if keeps else 0)


# --- A real environment --------------------------------------------------------------------------


def _feedback(observation: Array) -> Array:
    return np.clip([np.dot((0.3, 10.0, 0.6, 1.2), observation)], -3, 3)


def _inverted_pendulum() -> None:
    settings = MarginSettings(margins=("delay",))
    margin(_feedback, lambda: gymnasium.make("InvertedPendulum-v5"), settings)
