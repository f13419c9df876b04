"""What a robot's own record of ticks says: did it keep its limits, and did it stop in time?"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from midstride.realtime.bodies import TaskBody
from midstride.realtime.limiter import stop_path

_ROUNDED = 1e-6  # the record has nine digits


def judge(
    path: Path, watchdog_s: float, spans: Sequence[tuple[float, float]] = ()
) -> dict[str, Any]:
    """Ticks outside of limits, ticks that moved too late, stops, and the error of their length.

    spans: of each fault, when it began and when it was over: the robot must have stopped between
    """
    body = TaskBody("cartpole")
    limits, tick_s = body.declared.limits, body.tick_s
    assert limits is not None
    with path.open() as file:
        rows = list(csv.DictReader(file))
    at_s = np.array([float(row["at_s"]) for row in rows])
    number = np.array([int(row["decision"]) for row in rows])
    state = np.array([row["state"] for row in rows])
    place, velocity, acceleration = (
        np.array([float(row[name]) for row in rows])
        for name in ("place", "velocity", "acceleration")
    )
    # An episode that begins anew puts the robot elsewhere, at rest: no motion.
    goes_on = np.diff(at_s) < 1.5 * tick_s
    jerk = np.diff(acceleration) / tick_s
    outside = (place < limits.low[0] - _ROUNDED) | (place > limits.high[0] + _ROUNDED)
    outside |= np.abs(velocity) > limits.velocity[0] * (1 + _ROUNDED)
    outside |= np.abs(acceleration) > limits.acceleration[0] * (1 + _ROUNDED)
    outside[1:] |= goes_on & (np.abs(jerk) > limits.jerk[0] * (1 + 1e-4))

    # A fresh command is where a new decision is followed, or where the robot was armed.
    fresh = np.zeros(len(rows), bool)
    fresh[1:] = (number[1:] > number[:-1]) | ((state[1:] == "armed") & (state[:-1] != "armed"))
    last_fresh_s = np.maximum.accumulate(np.where(fresh, at_s, -np.inf))
    longest_s = float(stop_path(limits, limits.velocity, limits.acceleration)[1].max())
    moved = np.zeros(len(rows), bool)
    moved[1:] = np.diff(place) != 0
    too_late = moved & (at_s > last_fresh_s + watchdog_s + longest_s + 3 * tick_s)

    errors, stopped_s = [], []
    for k in np.flatnonzero((state[1:] != "armed") & (state[:-1] == "armed")) + 1:
        rest = np.flatnonzero(state[k:] == "stopped")
        if len(rest) and state[k] in ("stopping", "stopped"):
            far, _ = stop_path(limits, [velocity[k - 1]], [acceleration[k - 1]])
            errors.append(abs(place[k + rest[0]] - place[k - 1] - far[0]))
            stopped_s.append(at_s[k])
    stops = np.array(stopped_s)
    without = [not ((stops >= began_s) & (stops <= over_s)).any() for began_s, over_s in spans]
    return {
        "ticks": len(rows),
        "seconds of motion": round(float(moved.sum() * tick_s), 1),
        "outside limits": int(outside.sum()),
        "moved too late": int(too_late.sum()),
        "stops": len(errors),
        "faults without a stop": sum(without),
        "stop error m": float(max(errors, default=0.0)),
    }
