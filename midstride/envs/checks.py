"""Counts, cores and render modes, checked."""

from __future__ import annotations

import os
from typing import Any

import numpy as np


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_count(name: str, count: Any) -> int:
    """`count` as a whole number of at least 1."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {count!r}")
    return int(count)


def check_render_mode(render_mode: str | None) -> str | None:
    if render_mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
    return render_mode
