"""Mean and deviation of what was observed so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST_VARIANCE = 1e-6  # of a column that never moved

Batch = dict[str, NDArray[Any]]


class Normaliser:
    """Running mean and variance of each column, by Chan's way of putting two samples together."""

    def __init__(self, columns: int) -> None:
        self.count = 0
        self.mean = np.zeros(columns)
        self._squares = np.zeros(columns)  # sum of squared distances to the mean

    def add(self, observations: NDArray[Any]) -> None:
        """Observations (n, columns)."""
        rows = np.asarray(observations, float)
        n, mean = len(rows), rows.mean(axis=0)
        away, total = mean - self.mean, self.count + n
        self._squares += ((rows - mean) ** 2).sum(axis=0) + away**2 * (self.count * n / total)
        self.mean += away * (n / total)
        self.count = total

    def mean_and_scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What to subtract, and what to multiply with; (columns,) each."""
        if self.count < 2:
            return np.zeros_like(self.mean, np.float32), np.ones_like(self.mean, np.float32)
        scale = 1 / np.sqrt(self._squares / self.count + _LEAST_VARIANCE)
        return self.mean.astype(np.float32), scale.astype(np.float32)

    def arrays(self) -> Batch:
        """For a checkpoint."""
        return {"normal": np.stack([self.mean, self._squares, np.full_like(self.mean, self.count)])}

    def restore(self, arrays: Batch) -> None:
        mean, squares, count = arrays["normal"]
        self.mean, self._squares, self.count = mean.copy(), squares.copy(), int(count[0])
