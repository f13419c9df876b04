"""Numbers that are numbers: neither NaN nor infinite, nor too large for the float32 of networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SURELY = 1e37  # a sum of squares below this has no term that is not finite, in any float type


def is_finite(array: NDArray[Any]) -> bool:
    """Whether all of an array are finite numbers, as float32 too.

    One pass without temporaries, a microsecond for a small array: a sum of squares cannot cancel,
    and is not finite if any part of it is not. Only where it is large is every number looked at.
    """
    if array.dtype.kind != "f":
        return True
    if float(np.vdot(array, array)) < _SURELY:
        return True
    return not misfits(array).any()


def misfits(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of an array are not finite numbers."""
    with np.errstate(over="ignore"):
        return ~np.isfinite(np.asarray(array, np.float32))


def first_misfit(array: NDArray[Any]) -> tuple[int, ...]:
    """Where the first is."""
    return tuple(int(i) for i in np.argwhere(misfits(array))[0])


def check_finite(observation: NDArray[Any]) -> None:
    """An error if an observation, or any of a batch (n, columns), is not of finite numbers."""
    if not is_finite(observation):
        *row, column = first_misfit(observation)
        which = f" of observation {row[0]}" if row else ""
        raise ValueError(
            f"an observation must be of finite numbers, and column {column}{which} is "
            f"{observation[(*row, column)]:g}: no action was chosen"
        )
