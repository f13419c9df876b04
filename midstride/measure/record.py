"""What is asked about a policy's margins, and the record of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from midstride.latency_text import read_latency
from midstride.measure.decision_time import DecisionTime
from midstride.measure.evaluate import EVALUATION_SEED
from midstride.seconds import Time
from midstride.settings import Range, Settings
from midstride.timing import Thinker

Axis = Literal["delay", "jitter", "loss"]


@dataclass(frozen=True)
class MarginSettings(Settings):
    """What is asked of a policy."""

    kind: ClassVar[str] = "setting of a margin"

    share: Annotated[float, Range(0.01, 0.999)] = 0.9
    """share of what the policy has at latency 0 that it must keep"""
    floor: str | float | None = None
    """return that counts as nothing: a number, or nothing, for what doing nothing gets (default: 0
    if every episode at latency 0 is above 0, else nothing)"""
    threshold: float | None = None
    """return that must be reached, in place of a share"""
    measure: Literal["return", "success"] | None = None
    """what is kept: return, or success, the share of episodes that succeed (default: success in
    tasks of ours that measure it, else return)"""
    margins: tuple[Axis, ...] = ("delay", "jitter", "loss")
    """which margins to find; delay always"""
    longest: Time | None = None
    """longest latency to try (default: 10 periods)"""
    at: Time | None = None
    """mean latency at which jitter and loss are tried (default: half of the delay margin)"""
    latency: tuple[str, ...] = ()
    """latencies of your robot to measure beside the curve: trace:latencies.csv,up (measured),
    25ms, step:0,25ms, jitter:25ms,10ms, lost:0.1:25ms"""
    period: Time | None = None
    """from one observation to the next (default: the environment's own step, or as trained)"""
    step: Time | None = None
    """how long a step of the environment lasts, where it does not say so itself"""
    thinker: Thinker | None = None
    """beyond the period: pipelined observes every period, serial when its last thought is over
    (default: as trained, else pipelined)"""
    episodes: Annotated[int, Range(2, 100_000)] = 80
    """episodes at one latency at most; more make the interval narrower"""
    seed: Annotated[int, Range(0)] = EVALUATION_SEED
    """seed of the first episode; the others count up from it, alike at every latency"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for text in self.latency:
            read_latency(text)
        if self.threshold is not None and self.floor is not None:
            raise ValueError("give a threshold or a floor, not both: a threshold needs no floor")
        if isinstance(self.floor, str) and self.floor != "nothing":
            try:
                object.__setattr__(self, "floor", float(self.floor))
            except ValueError:
                raise ValueError(f"floor must be a number or nothing, got {self.floor!r}") from None


@dataclass(frozen=True)
class Point:
    """What was measured at one place of an axis."""

    at: float  # seconds of latency or of spread, or the share of lost decisions
    episodes: int
    mean: float  # return, or the share of successes
    low: float  # its 95 % interval
    high: float
    kept: float | None  # of what there is at latency 0, above the floor; None with a threshold
    jerk: float | None  # see Smoothness
    changes_per_s: float


@dataclass(frozen=True)
class Line:
    """A margin along one axis, and the points that were tried, by place."""

    margin: float
    low: float  # its 95 % interval
    high: float | None  # None: beyond the highest that was tried
    beyond: bool  # nothing that was tried is too much: the margin is at least this
    recovers: tuple[float, ...]  # places beyond the margin where it keeps again
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Margin:
    """How much latency a policy stands."""

    delay: Line
    jitter: Line | None  # None: not asked for, or no room for it
    loss: Line | None
    at_s: float  # mean latency of jitter and loss
    under: dict[str, Point]  # latencies that were given, by their text
    measure: str  # return or success
    share: float
    floor: float | None  # mean over episodes; None with a threshold
    bar: float  # what must be kept
    decision_time: DecisionTime
    period_s: float
    tick_s: float
    thinker: str
    episodes: int  # that were played in all
    seed: int
    seconds: float  # that it took

    @property
    def delay_s(self) -> float:
        return self.delay.margin

    @property
    def delay_interval_s(self) -> tuple[float, float | None]:
        return self.delay.low, self.delay.high

    @property
    def curve(self) -> tuple[Point, ...]:
        """Over latency."""
        return self.delay.points

    @property
    def jitter_s(self) -> float | None:
        return None if self.jitter is None else self.jitter.margin

    @property
    def jitter_interval_s(self) -> tuple[float, float | None] | None:
        return None if self.jitter is None else (self.jitter.low, self.jitter.high)

    @property
    def loss_share(self) -> float | None:
        return None if self.loss is None else self.loss.margin

    @property
    def loss_interval(self) -> tuple[float, float | None] | None:
        return None if self.loss is None else (self.loss.low, self.loss.high)

    @property
    def smoothness(self) -> tuple[tuple[float, float | None, float], ...]:
        """(latency in s, jerk, changes per s) along the curve."""
        return tuple((p.at, p.jerk, p.changes_per_s) for p in self.curve)
