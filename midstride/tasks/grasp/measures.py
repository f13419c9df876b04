"""What is measured of an episode of grasping: duration, completion of actions, jerk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.tasks.grasp import kinematics
from midstride.tasks.grasp.model import TICK_S
from midstride.tasks.grasp.world import Decision

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]
Info = dict[str, Any]


class Measures:
    """What is reported of an episode, summed up while it runs.

    completion: of the commanded displacements, how much was done when the next observation was
        taken, or the next action took over before it: what was moved along the commanded directions
        (overshoot left out), summed, over the sum of their lengths; completion_until_switch: the
        same when the next action took over. Decisions that never came into force do not count.
    jerk: root mean square of the fingertips' third derivative, from their places at every turn of
        the controller; squared_jerk: its square times the duration, which longer episodes have
        more of; path_m: how far the fingertips went.
    """

    def __init__(self, n: int) -> None:
        self.seconds = np.zeros(n)
        self.first_latency_s = np.full(n, np.nan)
        self.commanded_m = np.zeros(n)
        self.executed_m = np.zeros(n)  # up to the next observations
        self.until_switch_m = np.zeros(n)  # up to the next switches
        self.asked_m = np.zeros((n, 3))  # of the action in flight
        self.from_m = np.zeros((n, 3))
        self.squared_jerk = np.zeros(n)
        self.jerks = np.zeros(n, np.int64)
        self.path_m = np.zeros(n)
        # Place, velocity and acceleration, and when: NaN until there are enough places.
        self.derivatives = np.full((3, n, 3), np.nan)
        self.when_s = np.full((3, n), np.nan)
        self.clock_s = np.zeros(n)

    def reset(self, ids: NDArray[np.integer]) -> None:
        for total in (
            self.seconds, self.commanded_m, self.executed_m, self.until_switch_m, self.asked_m,
            self.squared_jerk, self.jerks, self.path_m, self.clock_s,
        ):  # fmt: skip
            total[ids] = 0
        self.first_latency_s[ids] = np.nan
        self.derivatives[:, ids] = np.nan
        self.when_s[:, ids] = np.nan

    def add(self, decision: Decision, pose: Array, active: Mask) -> None:
        latency_s = decision.latency_ticks * TICK_S
        self.seconds += np.where(active, decision.period_ticks * TICK_S, 0)
        fresh = active & np.isnan(self.first_latency_s)
        self.first_latency_s[fresh] = latency_s[fresh]

        new = np.zeros(len(active), bool)  # the action in force came into force in this period
        for which, place, displacement in decision.switches:
            here, asked = place[:, :3], displacement[:, :3]
            done = _along(here - self.from_m, self.asked_m)
            self.until_switch_m[which] += done[which]
            self.executed_m[which & new] += done[which & new]
            self.commanded_m[which] += np.linalg.norm(asked, axis=1)[which]
            self.from_m[which], self.asked_m[which] = here[which], asked[which]
            new |= which
        self.executed_m[new] += _along(pose[:, :3] - self.from_m, self.asked_m)[new]
        self._add_jerk(decision)

    def _add_jerk(self, decision: Decision) -> None:
        if not decision.trail:
            return
        n = len(self.seconds)
        joints = np.concatenate([joints for _, joints in decision.trail])
        places = kinematics.forward(joints)[0].reshape(-1, n, 3)
        for (ticks, _), place in zip(decision.trail, places, strict=True):
            turn = ticks > 0
            moved = np.linalg.norm(place - self.derivatives[0], axis=1)
            self.path_m += np.where(turn, np.nan_to_num(moved), 0)
            # Differences belong to the middle of what they are differences of.
            value, when = place, self.clock_s
            for k in range(3):
                last, then = self.derivatives[k].copy(), self.when_s[k].copy()
                self.derivatives[k][turn], self.when_s[k][turn] = value[turn], when[turn]
                value = (value - last) / (when - then)[:, None]
                when = (when + then) / 2
            known = turn & np.isfinite(value).all(axis=1)
            self.squared_jerk[known] += (value[known] ** 2).sum(axis=1)
            self.jerks[known] += 1
            self.clock_s += ticks * TICK_S

    def report(self, success: Mask, pose: Array) -> Info:
        """`pose`: at the end of the episode, which is also that of the action in flight."""
        squared = _ratio(self.squared_jerk, self.jerks.astype(float))  # in its mean
        last = _along(pose[:, :3] - self.from_m, self.asked_m)
        return {
            "success": success.copy(),
            "duration_s": self.seconds.copy(),
            "policy_duration_s": self.seconds - np.nan_to_num(self.first_latency_s),
            "completion": _ratio(self.executed_m, self.commanded_m),
            "completion_until_switch": _ratio(self.until_switch_m + last, self.commanded_m),
            "jerk": np.sqrt(squared),
            "squared_jerk": squared * self.seconds,
            "path_m": self.path_m.copy(),
        }


def _along(moved: Array, asked: Array) -> Array:
    """How far `moved` (n, 3) goes along `asked`, no farther than it."""
    length = np.linalg.norm(asked, axis=1)
    inner = (moved * asked).sum(axis=1)
    done = np.divide(inner, length, out=np.zeros_like(inner), where=length > 1e-6)
    return np.minimum(done, length)


def _ratio(a: Array, b: Array) -> Array:
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)
