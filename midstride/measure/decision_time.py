"""How long a policy takes for one decision, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

_FEWEST = 20  # decisions that are timed however long they take


@dataclass(frozen=True)
class DecisionTime:
    """Quantiles over single decisions, one observation each."""

    p50_s: float
    p99_s: float
    decisions: int  # that were timed


def decision_time(
    policy: Callable[[Any], Any],
    observation: Any,
    decisions: int = 1000,
    warm_up: int = 50,
    at_most_s: float = 5.0,
    timer: Callable[[], float] = perf_counter,
) -> DecisionTime:
    """Time `policy(observation)`, again and again, after some decisions that are not counted.

    observation: one, without a batch axis, as a robot would give it. A policy that remembers
    goes on remembering: call its `reset()` afterwards.
    at_most_s: a slow policy is asked less often, but at least 20 times
    """
    if decisions < 1 or warm_up < 0:
        raise ValueError(
            "a decision time needs at least 1 decision and a warm-up of at least 0, got "
            f"{decisions} and {warm_up}"
        )
    began_s = timer()
    for _ in range(warm_up):
        policy(observation)
        if timer() - began_s > at_most_s / 2:
            break
    took_s: list[float] = []
    began_s = before_s = timer()
    while len(took_s) < decisions:
        policy(observation)
        now_s = timer()
        took_s.append(now_s - before_s)
        before_s = now_s
        if now_s - began_s > at_most_s and len(took_s) >= _FEWEST:
            break
    p50_s, p99_s = np.quantile(took_s, (0.5, 0.99))
    return DecisionTime(float(p50_s), float(p99_s), len(took_s))
