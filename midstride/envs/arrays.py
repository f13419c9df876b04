"""Batches of actions and observations of any make (NumPy, PyTorch, JAX), where they are.

What is decided of time is decided on the host; masks go to the device, batches do not leave it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def namespace(array: Any) -> Any:
    """The functions that work on an array: its array API, or (PyTorch) the module it is of."""
    own = getattr(array, "__array_namespace__", None)
    return import_module(type(array).__module__.partition(".")[0]) if own is None else own()


def mapped(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """`function` of every array of dictionaries and tuples of the same shape."""
    if isinstance(first, dict):
        return {k: mapped(function, first[k], *[other[k] for other in others]) for k in first}
    if isinstance(first, tuple):
        return tuple(mapped(function, *parts) for parts in zip(first, *others, strict=True))
    return function(first, *others)


def select(which: Mask, chosen: Any, other: Any) -> Any:
    """Rows of `chosen` where `which` is set, of `other` elsewhere: new arrays."""

    def rows(a: Any, b: Any) -> Any:
        xp = namespace(a)
        mask = xp.asarray(which.reshape(-1, *[1] * (a.ndim - 1)), device=a.device)
        return xp.where(mask, a, b)

    return mapped(rows, chosen, other)


def kept(batch: Any) -> Any:
    """A batch that stays as it is, whoever writes into the original."""
    return mapped(lambda array: namespace(array).asarray(array, copy=True), batch)


def on_host(flags: Any) -> NDArray[Any]:
    """Flags of environments as a NumPy array."""
    return np.asarray(flags.cpu() if hasattr(flags, "cpu") else flags)  # of PyTorch


def beside(numbers: NDArray[Any], array: Any, dtype: Any = None) -> Any:
    """Host numbers as an array of the make of `array`, on its device, of its type unless given."""
    xp = namespace(array)
    return xp.asarray(numbers, device=array.device, dtype=array.dtype if dtype is None else dtype)


def batch_of(space: gymnasium.Space[Any], item: Any, n: int) -> Any:
    """n times the same item of a space, in NumPy."""
    empty: Any = create_empty_array(space, n)
    return concatenate(space, [item] * n, empty)


def merged_info(earlier: dict[str, Any], later: dict[str, Any], which: Mask) -> dict[str, Any]:
    """The entries of two steps of a vector environment: of `which` the earlier, else the later."""
    found = dict(later)
    for name, value in earlier.items():
        if isinstance(value, dict):
            found[name] = merged_info(value, later.get(name, {}), which)
        elif not hasattr(value, "shape") or value.shape[:1] != which.shape:
            found.setdefault(name, value)
        elif name in later:
            found[name] = select(which, value, later[name])
        else:  # nobody else has it
            found[name] = select(which, value, namespace(value).zeros_like(value))
    for name in later.keys() - earlier.keys():
        if name.startswith("_") and hasattr(later[name], "shape"):
            found[name] = select(which, namespace(later[name]).zeros_like(later[name]), later[name])
    return found
