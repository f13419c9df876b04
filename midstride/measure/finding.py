"""The finding of margins: episodes that are kept, the bar that they must reach, the axes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.latency import Fixed, Jittered, LatencyModel, Lossy
from midstride.latency_text import read_latency
from midstride.measure.decision_time import DecisionTime, decision_time
from midstride.measure.play import Place, Played, Together, Workers, nothing
from midstride.measure.record import Line, Margin, MarginSettings, Point
from midstride.measure.search import Found, search
from midstride.measure.statistics import half_width, interval, share_interval
from midstride.seconds import as_seconds, format_s, to_ticks

Array = NDArray[np.float64]
OnProgress = Callable[[str, int], None]
PERIODS = 10  # the longest latency that is tried, unless it is given
LOSS_STEP = 0.05


class NothingToKeep(ValueError):
    """A policy that has nothing at latency 0 that it could lose: it has no margin."""


class Finding:
    """What was played so far, and the margins that follow from it."""

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
        self.thinker = timing.thinker
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
                raise NothingToKeep(
                    f"at latency 0 the policy's {self.measured} is {at_zero.mean():.4g}, below the "
                    f"threshold of {settings.threshold:g}: there is no latency that it stands"
                )
            return
        usual = 0.0 if self.measured == "success" or at_zero.min() > 0 else "nothing"
        self.floor = usual if settings.floor is None else settings.floor
        above = at_zero - self.floors(few)
        if above.mean() <= 0 or (np.ptp(above) > 0 and above.mean() <= half_width(above)):
            floor = self.floors(few).mean()
            raise NothingToKeep(
                f"at latency 0 the policy's {self.measured} is {at_zero.mean():.4g}, not clearly "
                f"above its floor of {floor:.4g}: a share of that means nothing; give more "
                "episodes, another floor, or a threshold"
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
        levels = self._levels()
        for text in settings.latency:  # an error now, not when all else is found
            self._place.spaces(read_latency(text))
        self.set_bar()
        self._check_at()
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
            self.period_s, self.tick_s, self.thinker, self._count, settings.seed,
            time.perf_counter() - began,
        )  # fmt: skip

    def _levels(self) -> int:
        """How many ticks of latency are tried at most; an error if an episode is shorter."""
        longest_s = as_seconds(self._settings.longest)
        if longest_s is not None:
            levels = to_ticks(longest_s, self.tick_s, "longest latency", low_ticks=1)
            if levels < 1:
                raise ValueError(
                    f"the longest latency to try must be at least a tick of {format_s(self.tick_s)}"
                )
            self._place.spaces(Fixed(levels * self.tick_s))
            return levels
        levels = max(1, round(PERIODS * self.period_s / self.tick_s))
        while True:  # nobody asked for so long a one: less, where episodes are short
            try:
                self._place.spaces(Fixed(levels * self.tick_s))
                return levels
            except ValueError:
                if levels == 1:
                    raise
                levels //= 2

    def _check_at(self) -> None:
        """An error if the policy does not even keep the mean latency that it was asked for at."""
        given = as_seconds(self._settings.at)
        if given is None:
            return
        at_s = to_ticks(given, self.tick_s, "mean latency") * self.tick_s
        few = range(len(self._played[Fixed(0.0)]))
        if self.gains(Fixed(at_s), few).mean() < 0:
            raise ValueError(
                f"at {format_s(at_s)} the policy does not keep what it must: there is no jitter or "
                "loss that it stands there; give a shorter --at"
            )

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
        drawn_s = model.episode(np.random.default_rng(0))(1000)
        return self._point(float(np.mean(drawn_s)), model)

    def _point(self, at: float, model: LatencyModel) -> Point:
        played = self._played[model]
        everything = range(len(played))
        values = self.values(model, everything)
        low, high = share_interval(values) if self.measured == "success" else interval(values)
        at_zero = self.values(Fixed(0.0), everything).mean()
        kept = None
        if self._settings.threshold is None:
            floor = self.floors(everything).mean()
            kept = float((values.mean() - floor) / (at_zero - floor)) if at_zero != floor else 1.0
        jerks = [one.smoothness.jerk for one in played if one.smoothness.jerk is not None]
        return Point(
            at,
            len(played),
            float(values.mean()),
            low,
            high,
            kept,
            float(np.mean(jerks)) if jerks else None,
            float(np.mean([one.smoothness.changes_per_s for one in played])),
        )
