"""How much latency does a policy stand? Whoever trained it, in any environment.

The **delay margin** is the longest latency, on the grid of the environment's ticks, up to which the
policy keeps a share (90 %) of what it has at latency 0. A policy keeps a latency if the mean over
episodes of what it gets there is at least

    floor + share * (what it gets at latency 0 - floor)

with the same seeds at both (paired). The margin is the *first* crossing: a policy that recovers at
a longer latency has not stood what is before it. The **jitter margin** (spread around a mean
latency) and the **loss margin** (share of lost decisions) are found by the same search, against
the same bar.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

from midstride.envs.learnable import Environment
from midstride.envs.wrapped import WrappedSettings
from midstride.latency import Fixed, Jittered, LatencyModel, Lossy, read_latency
from midstride.measure.decision_time import DecisionTime, decision_time
from midstride.measure.evaluate import EVALUATION_SEED
from midstride.measure.play import Loads, Place, Played, Single, Together, Workers, nothing
from midstride.measure.search import Found, search
from midstride.measure.statistics import half_width, interval, share_interval
from midstride.policies.fit import fit
from midstride.seconds import Time, as_seconds, format_s, to_ticks
from midstride.settings import Range, Settings
from midstride.timing import Thinker

Array = NDArray[np.float64]
PERIODS = 10  # the longest latency that is tried, unless it is given
LOSS_STEP = 0.05
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
    thinker: Thinker = "pipelined"
    """beyond the period: pipelined observes every period, serial when its last thought is over"""
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
    kept: float  # of what there is at latency 0, above the floor
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


OnProgress = Callable[[str, int], None]


def margin(
    policy: Any,
    make_env: Callable[[], gymnasium.Env[Any, Any]] | Environment,
    settings: MarginSettings | None = None,
    jobs: int = 1,
    on_progress: OnProgress = lambda text, episodes: None,
) -> Margin:
    """How much latency `policy` stands, in the environments that `make_env` makes.

    policy: whatever `midstride.load` or `as_policy` gives, or a function of an observation
    make_env: makes the bare environment, with no latency; or settings of an environment
    jobs: processes that play episodes side by side; policy and environment must be picklable
    on_progress: told what is known, and how many episodes were played
    """
    settings = settings or MarginSettings()
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    began = time.perf_counter()
    place = place_of(make_env, settings)
    loaded = policy() if isinstance(policy, Loads) else policy
    observed, acted = place.spaces(Fixed(0.0))
    fitted = fit(loaded, observed, acted)
    # Our own tasks are stepped together, in this process.
    workers = Workers(policy, place, jobs) if jobs > 1 and isinstance(place, Single) else None
    try:
        record = _Record(fitted, place, workers, settings, on_progress)
        return record.measure(began)
    finally:
        if workers is not None:
            workers.close()


def place_of(make_env: Any, settings: MarginSettings) -> Single | Together:
    """Where episodes are played, with the period that is asked for."""
    period_s, step_s = as_seconds(settings.period), as_seconds(settings.step)
    if not isinstance(make_env, Environment):
        if not callable(make_env):
            raise ValueError(
                "make_env must be a function that makes a Gymnasium environment, such as lambda: "
                f"gymnasium.make('InvertedPendulum-v5'), got {make_env!r}"
            )
        return Single(make_env, period_s, step_s, settings.thinker)
    environment = with_times(make_env, period_s, step_s, settings.thinker)
    return (
        Single(environment) if isinstance(environment, WrappedSettings) else Together(environment)
    )


def with_times(
    environment: Any, period_s: float | None, step_s: float | None, thinker: Thinker
) -> Any:
    """The environment with a fixed period: what is asked for, or the longest that it has.

    With an `execution` time the period would grow with the latency.
    """
    from dataclasses import fields, replace

    known = {field.name for field in fields(environment)}
    changed: dict[str, Any] = {"thinker": thinker} if thinker != environment.thinker else {}
    if step_s is not None:
        if "step" not in known:
            raise ValueError(f"the steps of {environment.task} have a length of their own: no step")
        changed["step"] = step_s
    if "mode" in known and environment.mode == "blocking":
        changed["mode"] = "concurrent"
    elif period_s is None and getattr(environment, "execution", None) is not None:
        period_s = environment.timing().longest_period_s
    if period_s is not None:
        if "period" not in known:
            raise ValueError(f"the period of {environment.task} is its own step: no period")
        changed |= {"period": period_s} | ({"execution": None} if "execution" in known else {})
    return replace(environment, **changed)


class _Record:
    """What was played so far, and what is asked of it."""

    def __init__(
        self,
        policy: Any,
        place: Place,
        workers: Workers | None,
        settings: MarginSettings,
        on_progress: OnProgress,
    ) -> None:
        self._policy, self._place, self._workers = policy, place, workers
        self._settings, self._tell = settings, on_progress
        self._played: dict[LatencyModel, list[Played]] = {}
        self._idle: list[Played] = []
        self._count = 0
        timing = place.timing()
        self.tick_s, self.period_s = timing.tick_s, timing.longest_period_s
        self.measured: str = settings.measure or "return"
        self.floor: float | str = 0.0

    # --- Episodes

    def values(self, latency: LatencyModel, episodes: range) -> Array:
        """Return or success of episodes, played if they were not."""
        had = self._played.setdefault(latency, [])
        wanted = range(len(had), episodes.stop)
        if wanted:
            seeds = [self._settings.seed + k for k in wanted]
            if self._workers is not None:
                had += self._workers.play(latency, seeds)
            else:
                had += self._place.play(self._policy, latency, seeds)
            self._count += len(wanted)
        return np.array([self._value(one) for one in had[episodes.start : episodes.stop]])

    def _value(self, played: Played) -> float:
        if self.measured == "return":
            return played.total
        if played.success is None:
            raise ValueError(
                "the environment does not tell whether an episode succeeded (info has no success "
                "or is_success at its end): measure the return"
            )
        return played.success

    def floors(self, episodes: range) -> Array:
        """What counts as nothing, in each episode."""
        if not isinstance(self.floor, str):
            return np.full(len(episodes), float(self.floor))
        wanted = range(len(self._idle), episodes.stop)
        if wanted:
            _, acted = self._place.spaces(Fixed(0.0))
            seeds = [self._settings.seed + k for k in wanted]
            self._idle += self._place.play(nothing(acted), Fixed(0.0), seeds)
            self._count += len(wanted)
        return np.array([self._value(one) for one in self._idle[episodes.start : episodes.stop]])

    # --- The bar

    def set_bar(self) -> None:
        """Decide what is measured and what counts as nothing; an error if nothing can be lost."""
        settings, few = self._settings, range(-(-self._settings.episodes // 8) + 1)
        self.values(Fixed(0.0), few)
        first = self._played[Fixed(0.0)]
        if settings.measure is None and isinstance(self._place, Together):
            self.measured = "return" if first[0].success is None else "success"
        at_zero = self.values(Fixed(0.0), few)
        if settings.threshold is not None:
            if at_zero.mean() < settings.threshold:
                raise ValueError(
                    f"at latency 0 the policy's {self.measured} is {at_zero.mean():.4g}, below the "
                    f"threshold of {settings.threshold:g}: there is no latency that it stands"
                )
            return
        usual = 0.0 if self.measured == "success" or at_zero.min() > 0 else "nothing"
        self.floor = usual if settings.floor is None else settings.floor
        above = at_zero - self.floors(few)
        if above.mean() <= 0 or (np.ptp(above) > 0 and above.mean() <= half_width(above)):
            floor = self.floors(few).mean()
            raise ValueError(
                f"at latency 0 the policy's {self.measured} is {at_zero.mean():.4g}, not clearly "
                f"above its floor of {floor:.4g}: a share of that means nothing; give another "
                "floor, or a threshold"
            )

    def gains(self, latency: LatencyModel, episodes: range) -> Array:
        """What each episode has above what it must keep."""
        values = self.values(latency, episodes)
        if self._settings.threshold is not None:
            return values - self._settings.threshold
        floors, share = self.floors(episodes), self._settings.share
        return values - floors - share * (self.values(Fixed(0.0), episodes) - floors)

    def worst(self) -> float:
        """The gain of an episode that loses all: what it has at latency 0, above the floor."""
        episodes = range(len(self._played[Fixed(0.0)]))
        if self._settings.threshold is None:
            above = self.values(Fixed(0.0), episodes) - self.floors(episodes)
            return -self._settings.share * float(above.mean())
        return -9 * max(1e-9, float(self.gains(Fixed(0.0), episodes).mean()))

    # --- Margins

    def measure(self, began: float) -> Margin:
        """All of it."""
        settings = self._settings
        longest_s = as_seconds(settings.longest)
        levels = round(PERIODS * self.period_s / self.tick_s)
        if longest_s is not None:
            levels = to_ticks(longest_s, self.tick_s, "longest latency", low_ticks=1)
        if levels < 1:
            raise ValueError(
                f"the longest latency to try must be at least a tick of {format_s(self.tick_s)}"
            )
        levels = self._observable(levels)
        self.set_bar()
        took = self._decision_time()
        delay = self._line("delay", levels, self.tick_s, lambda level_s: Fixed(level_s))
        at_s = self._mean_latency(delay)
        jitter = loss = None
        if "jitter" in settings.margins and at_s > 0:
            spread = round(at_s / self.tick_s)
            jitter = self._line("jitter", spread, self.tick_s, lambda s: Jittered(at_s, s))
        if "loss" in settings.margins:
            shares = round(1 / LOSS_STEP) - 1
            loss = self._line("loss", shares, LOSS_STEP, lambda p: Lossy(Fixed(at_s), p))
        under = {text: self._under(text) for text in settings.latency}
        everything = range(len(self._played[Fixed(0.0)]))
        threshold = settings.threshold
        floor = None if threshold is not None else float(self.floors(everything).mean())
        at_zero = float(self.values(Fixed(0.0), everything).mean())
        bar = threshold if floor is None else floor + settings.share * (at_zero - floor)
        assert bar is not None
        return Margin(
            delay, jitter, loss, at_s, under, self.measured, settings.share, floor, bar, took,
            self.period_s, self.tick_s, settings.thinker, self._count, settings.seed,
            time.perf_counter() - began,
        )  # fmt: skip

    def _observable(self, levels: int) -> int:
        """The highest level at which what is observed is what the policy was trained on.

        A policy that knows pending actions has columns for as many as it was trained with.
        """
        size = self._policy.observation_size
        if size is None:
            return levels

        def fits(level: int) -> bool:
            space, _ = self._place.spaces(Fixed(level * self.tick_s))
            shape = getattr(space, "shape", None)
            return shape is None or len(shape) != 1 or shape == (size,)

        low, high = 0, levels
        if fits(high):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        if low == 0:
            raise ValueError("the policy observes other columns at any latency than at latency 0")
        return low

    def _decision_time(self) -> DecisionTime:
        observed, _ = self._place.spaces(Fixed(0.0))
        observed.seed(self._settings.seed)
        took = decision_time(self._policy, observed.sample())
        self._policy.reset()
        return took

    def _mean_latency(self, delay: Line) -> float:
        given = as_seconds(self._settings.at)
        if given is not None:
            return to_ticks(given, self.tick_s, "mean latency") * self.tick_s
        level = round(delay.margin / self.tick_s)
        return max(level // 2, min(level, 1)) * self.tick_s

    def _line(
        self, name: str, levels: int, step: float, model: Callable[[float], LatencyModel]
    ) -> Line:
        """The margin along an axis whose levels are `step` apart."""

        def at(level: int) -> LatencyModel:
            return model(level * step)

        def tell(gains: dict[int, Array]) -> None:
            kept = max((k for k, g in gains.items() if g.mean() >= 0), default=0)
            value = kept * step
            shown = f"{value:.0%} lost" if name == "loss" else format_s(value)
            self._tell(f"{name}: keeps at {shown}", self._count)

        found: Found = search(
            lambda level, episodes: self.gains(at(level), episodes),
            levels,
            self._settings.episodes,
            self.worst(),
            tell,
        )
        return Line(
            found.margin * step,
            found.low * step,
            None if found.high is None else found.high * step,
            found.beyond,
            tuple(level * step for level in found.recovers),
            tuple(self._point(level * step, at(level)) for level in found.gains),
        )

    def _under(self, text: str) -> Point:
        """At a latency that the user gave."""
        model = read_latency(text)
        self._tell(text, self._count)
        self.values(model, range(self._settings.episodes))
        return self._point(float(np.mean(model.values_s)), model)

    def _point(self, at: float, model: LatencyModel) -> Point:
        played = self._played[model]
        everything = range(len(played))
        values = self.values(model, everything)
        low, high = share_interval(values) if self.measured == "success" else interval(values)
        at_zero = self.values(Fixed(0.0), everything).mean()
        floor = 0.0 if self._settings.threshold is not None else self.floors(everything).mean()
        jerks = [one.smoothness.jerk for one in played if one.smoothness.jerk is not None]
        return Point(
            at,
            len(played),
            float(values.mean()),
            low,
            high,
            float((values.mean() - floor) / (at_zero - floor)) if at_zero != floor else 1.0,
            float(np.mean(jerks)) if jerks else None,
            float(np.mean([one.smoothness.changes_per_s for one in played])),
        )
