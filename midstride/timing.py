"""Time in a world that does not wait: the words, and the rules.

    capture t          switch t+t_AS                      next capture t+H
       |--- a_{i-1} still executing ---|------ a_i executing ------|--- a_i still ...
       |<------- latency t_AS -------->|<------ execution -------->|
       |<------------------------ period H ----------------------->|

capture     the instant at which the observation is taken
latency     t_AS: from capture to switch (state capture + communication + inference)
switch      the instant at which the new action pre-empts the old one, finished or not
execution   H - t_AS: how long the new action has run at the next capture
period      H: from capture to capture
in force    the decision that the actuators follow now
pending     made (captured) and not yet in force; several are, where t_AS > H
stale       overtaken: a decision made on a newer observation came into force before it
lost        never arrives; what is in force goes on
tick        one step of the physics; every time is a whole number of ticks

hold        the robot rests from capture to switch, and the world goes on

With t_AS > H a *pipelined* thinker takes an observation every period all the same; a *serial* one
when its thought is finished, at a multiple of the period. A robot that holds executes each action
for the period of blocking control, and thinks in addition to it: capture to capture is t_AS + H.

All times are seconds (`_s`); ticks (`_ticks`) exist only inside a simulation (`seconds.py`). A
latency model says which latencies may occur (`latency.py`); `Timing` checks that they fit the tick
and the period, and draws the schedule of an episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from midstride.latency import (
    Fixed,
    LatencyModel,
    Lossy,
    OnScaleOf,
    Trace,
    as_latency,
    loses,
    losses,
)
from midstride.seconds import (
    MAX_TICKS,
    TOLERANCE_TICKS,
    DoesNotFit,
    check_tick_s,
    format_on_grid,
    format_s,
    to_ticks,
    whole_ticks,
)

Thinker = Literal["pipelined", "serial"]
Mode = Literal["concurrent", "hold"]
Steps = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]  # latency, interval, lost

MOST_PERIODS = 1000  # that a latency may last: more is a mistake, and would need as much memory


@dataclass(frozen=True)
class Timing:
    """A latency model with a fixed `period_s` or a fixed `execution_s`, on a grid of ticks.

    With `period_s` the capture rate is constant and a longer latency leaves less execution; a
    latency longer than the period is what the `thinker` makes of it (`capture_interval`). With
    `execution_s` each period lasts as long as its latency plus the execution (the paper's toy
    tasks). Exactly one of the two is given. Everything is checked here, once.

    mode: concurrent, or hold: the robot rests while the policy thinks, and the world goes on. What
        is given as the period is then how long each action is executed, as in blocking control
        (latency 0), whose honest twin hold is; thinking comes on top of it.
    """

    latency: LatencyModel
    period_s: float | None = None
    execution_s: float | None = None
    tick_s: float = 0.005
    thinker: Thinker = "pipelined"
    mode: Mode = "concurrent"

    def __post_init__(self) -> None:
        check_tick_s(self.tick_s)
        check_thinker(self.thinker)
        if (self.period_s is None) == (self.execution_s is None):
            raise ValueError("give either a period or an execution time, not both or neither")
        if check_mode(self.mode) == "hold":
            if loses(self.latency):
                raise ValueError(
                    "a robot that holds waits for every decision, so none can be lost: use mode "
                    "concurrent, or a latency without lost decisions"
                )
            if self.period_s is not None:
                object.__setattr__(self, "execution_s", self.period_s)
                object.__setattr__(self, "period_s", None)
        values_s = np.asarray(self.latency.values_s, float)
        if values_s.max() > MAX_TICKS * self.tick_s:
            raise ValueError(
                f"a latency of {format_s(values_s.max())} is too long to be counted in physics "
                f"ticks of {format_s(self.tick_s)}: the longest is "
                f"{format_s(MAX_TICKS * self.tick_s)}"
            )
        if self.period_s is not None:
            self._check_period(self.period_s, values_s)
        else:
            assert self.execution_s is not None
            self._check_execution(self.execution_s, values_s)

    def _check_period(self, period_s: float, values_s: NDArray[np.float64]) -> None:
        self._check_latencies(values_s, 0)
        period_ticks = to_ticks(period_s, self.tick_s, "period", low_ticks=1)
        if period_ticks == 0:
            raise ValueError(
                "a period of 0 ms would last 0 s, and time must pass between two observations: "
                f"the shortest valid period is {format_on_grid(1, self.tick_s)}"
            )
        if self.latency_bounds_ticks[1] > MOST_PERIODS * period_ticks:
            raise ValueError(self._too_long(period_ticks))

    def _check_execution(self, execution_s: float, values_s: NDArray[np.float64]) -> None:
        shortest, holds = self._cover_ticks(float(values_s.min())), self.mode == "hold"
        execution_ticks = to_ticks(
            execution_s, self.tick_s, "execution", low_ticks=1 if shortest == 0 or holds else 0
        )
        if holds and execution_ticks == 0:
            raise ValueError(
                "a robot that holds moves only while it executes, so 0 ms of it would never move: "
                "the shortest valid period or execution is "
                f"{format_on_grid(1, self.tick_s)}"
            )
        self._check_latencies(values_s, 1 if execution_ticks == 0 else 0)
        if execution_ticks + shortest == 0:
            raise ValueError(
                "a period would last 0 s, because latency and execution can both be 0, and time "
                "must pass between two observations: give an execution of at least "
                f"{format_on_grid(1, self.tick_s)}"
            )

    def _check_latencies(self, values_s: NDArray[np.float64], low: int) -> None:
        """Every latency that can occur is a whole number of ticks, if none is rounded."""
        if self.latency.rounding != "exact":
            return
        lossless = self.latency
        while isinstance(lossless, (Lossy, OnScaleOf)):
            lossless = as_latency(lossless.latency)
        for value_s in values_s:
            try:
                to_ticks(value_s, self.tick_s, "latency", low)
            except DoesNotFit as error:
                if not isinstance(lossless, Trace):
                    raise
                raise DoesNotFit(
                    f"{error}; or say how the trace is rounded: rounding='up' or 'nearest', on "
                    "the command line trace:latencies.csv,up or trace:latencies.csv,nearest"
                ) from None

    def _cover_ticks(self, latency_s: float) -> int:
        """A latency after rounding; of one that does not fit, the next tick."""
        if self.latency.rounding == "exact" and whole_ticks(latency_s, self.tick_s) is None:
            return math.ceil(latency_s / self.tick_s)
        return int(self._to_ticks(np.array(latency_s)))

    def _too_long(self, period_ticks: int) -> str:
        """What is said of a latency of very many periods."""
        period = format_on_grid(period_ticks, self.tick_s)
        latency_s = self.latency_high_s
        wrong = (
            f"a latency of {format_s(latency_s)} is longer than {MOST_PERIODS} periods of {period}"
        )
        if whole_ticks(latency_s * 1e-3, self.tick_s) is not None:
            return f"{wrong}: did you mean {latency_s:.6g}ms?"
        longest = format_on_grid(MOST_PERIODS * period_ticks, self.tick_s)
        return f"{wrong}: the longest valid latency is {longest}"

    def _to_ticks(self, latencies_s: NDArray[np.float64]) -> NDArray[np.int64]:
        ticks = latencies_s / self.tick_s
        if self.latency.rounding == "up":
            return np.ceil(ticks - TOLERANCE_TICKS).astype(np.int64)
        return np.rint(ticks).astype(np.int64)

    @cached_property
    def latency_bounds_ticks(self) -> tuple[int, int]:
        """The shortest and the longest latency that can occur."""
        ticks = self._to_ticks(np.asarray(self.latency.values_s, float))
        return int(ticks.min()), int(ticks.max())

    @property
    def latency_high_s(self) -> float:
        """The longest latency that can occur."""
        return self.latency_bounds_ticks[1] * self.tick_s

    @cached_property
    def selection_scale_ticks(self) -> int:
        """The latency that `selection_time` shows as 1: the longest, or the longest in training."""
        if isinstance(self.latency, OnScaleOf):
            return replace(self, latency=self.latency.trained).selection_scale_ticks
        return self.latency_bounds_ticks[1]

    @property
    def selection_scale_s(self) -> float:
        return self.selection_scale_ticks * self.tick_s

    def _interval(self, latency_ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ticks from the captures of decisions with these latencies to the next captures."""
        if self.period_s is not None:
            period_ticks = to_ticks(self.period_s, self.tick_s, "period")
            return capture_interval(latency_ticks, period_ticks, self.thinker)
        assert self.execution_s is not None
        return latency_ticks + to_ticks(self.execution_s, self.tick_s, "execution")

    @cached_property
    def shortest_period_ticks(self) -> int:
        """From a capture to the next, at least."""
        return int(self._interval(np.array(self.latency_bounds_ticks)).min())

    @cached_property
    def longest_period_s(self) -> float:
        """From a capture to the next, at most."""
        if self.period_s is not None and self.thinker == "pipelined":
            return self.period_s
        if self.execution_s is not None:
            return self.execution_s + self.latency_high_s
        return int(self._interval(np.array(self.latency_bounds_ticks)).max()) * self.tick_s

    @cached_property
    def pending_slots(self) -> int:
        """The most decisions that can be pending at a capture, before the new one enters.

        0 where none can be: a serial thinker, or no latency longer than the period. A policy that
        is run at another latency (`OnScaleOf`) knows of as many as it was trained with.
        """
        if isinstance(self.latency, OnScaleOf):
            return replace(self, latency=self.latency.trained).pending_slots
        return self.most_pending - 1

    @cached_property
    def most_pending(self) -> int:
        """The room that a `Flight` needs: a decision that it has no room for is a lost one."""
        longest = np.array([self.latency_bounds_ticks[1]])
        return max(1, int((-(-longest // self._interval(longest)))[0]))

    @cached_property
    def arrives_in_time(self) -> bool:
        """Whether every decision comes into force before the next capture, or at it."""
        return self.most_pending == 1 and not loses(self.latency)

    def episode(self, rng: np.random.Generator) -> Callable[[int], Steps]:
        """Start an episode: a function that gives (latency_ticks, interval_ticks, lost) of n steps.

        interval_ticks: from capture to next capture; lost: whether the decision never arrives
        """
        next_latencies = self.latency.episode(rng)
        next_lost = losses(self.latency, rng)

        def following(n: int) -> Steps:
            latency_ticks = self._to_ticks(next_latencies(n))
            return latency_ticks, self._interval(latency_ticks), next_lost(n)

        return following


class Schedule:
    """The latencies and intervals of the coming steps of n environments, and what will be lost.

    Those of a whole episode are drawn when it begins, from the environment's own generator: no
    Python loop while stepping, and no environment depends on another.
    """

    def __init__(self, timing: Timing, n: int, steps: int) -> None:
        """steps: of the longest episode; what comes after them repeats the last."""
        self._timing = timing
        self._latency = np.zeros((n, steps), np.int64)
        self._interval = np.zeros((n, steps), np.int64)
        self._lost = np.zeros((n, steps), bool)
        self.steps = np.zeros(n, np.int64)  # taken in the episodes under way
        self._never_changes = isinstance(timing.latency, Fixed)
        if self._never_changes:
            self._draw(slice(None), np.random.default_rng(0))

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """An episode begins in environment i."""
        if not self._never_changes:
            self._draw(i, rng)
        self.steps[i] = 0

    def _draw(self, i: int | slice, rng: np.random.Generator) -> None:
        coming = self._timing.episode(rng)(self._latency.shape[1])
        self._latency[i], self._interval[i], self._lost[i] = coming

    def coming(self) -> Steps:
        """Of the next step, (n,) each: ticks of latency and to the next capture; if it is lost."""
        at = np.arange(len(self.steps)), np.minimum(self.steps, self._latency.shape[1] - 1)
        return self._latency[at], self._interval[at], self._lost[at]


def check_shorter(timing: Timing, limit_s: float) -> None:
    """An error if a latency can be as long as an episode: nothing would ever be decided."""
    latency_s = timing.latency_high_s
    if latency_s < limit_s:
        return
    wrong = (
        f"a latency of {format_s(latency_s)} is as long as an episode of {format_s(limit_s)}, or "
        "longer"
    )
    if latency_s >= 1 and whole_ticks(latency_s * 1e-3, timing.tick_s) is not None:
        raise ValueError(f"{wrong}: did you mean {latency_s:.6g}ms?")
    raise ValueError(f"{wrong}: nothing would be decided in it")


def check_thinker(thinker: str) -> None:
    if thinker not in get_args(Thinker):
        raise ValueError(f"thinker must be {' or '.join(get_args(Thinker))}, got {thinker!r}")


def check_mode(mode: str) -> str:
    if mode not in get_args(Mode):
        raise ValueError(
            f"mode must be {' or '.join(get_args(Mode))}, got {mode!r} (blocking, the world frozen "
            "while the policy thinks, is concurrent with latency 0)"
        )
    return mode


def capture_interval(
    latency: NDArray[np.int64], period: NDArray[np.int64] | int, thinker: Thinker = "pipelined"
) -> NDArray[np.int64]:
    """Ticks from a capture to the next.

    pipelined: every period, whether or not the last thought is finished
    serial: one thought at a time: at the first multiple of the period at which it is finished
    """
    check_thinker(thinker)
    period = np.broadcast_to(np.asarray(period, np.int64), np.shape(latency))
    if thinker == "pipelined":
        return period.copy()
    return period * np.maximum(1, -(-np.asarray(latency) // np.maximum(period, 1)))
