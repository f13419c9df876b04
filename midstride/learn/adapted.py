"""What is asked of an adaptation, and the record of what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from midstride.latency import LatencyModel, PerEpisode
from midstride.learn.distil import FitSettings
from midstride.measure.curve import Returns
from midstride.policies.q import QPolicy
from midstride.seconds import Time, format_s
from midstride.settings import Range


@dataclass(frozen=True)
class AdaptSettings(FitSettings):
    """How a policy is adapted."""

    steps: Annotated[int, Range(1, 10**9)] = 20_000
    """steps of the frozen world that are recorded, if no data are given"""
    noise: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.4)
    """levels of noise on the policy's actions in them, in half ranges of an action (of discrete
    ones the share of random actions): each episode has one, all have about as many steps"""
    rounds: Annotated[int, Range(0, 1000)] = 4
    """rounds at most in which the student acts with latency and the policy says afterwards what
    would have been right; they end when enough is kept. 0: none"""
    round_steps: Annotated[int, Range(1, 10**9)] = 5_000
    """steps with latency in each round"""
    share: Annotated[float, Range(0.01, 1.5)] = 0.9
    """share of what the policy has without latency that is enough"""
    episodes: Annotated[int, Range(2, 100_000)] = 20
    """episodes in which policies are measured, with the same seeds"""
    pad: bool = False
    """let every decision wait for the longest latency, up to the next whole step, so that the
    latency is always the same: your robot must do that too"""
    period: Time | None = None
    """from one observation to the next (default: the environment's own step)"""
    step: Time | None = None
    """how long a step of the environment lasts, where it does not say so itself"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.noise or any(not 0 <= level <= 10 for level in self.noise):
            raise ValueError(f"noise needs levels from 0 to 10, got {self.noise}")


@dataclass(frozen=True)
class Stage:
    """A student: taught from the record alone, or after a round with latency."""

    pairs: int  # that it was taught from
    held_out: float  # root mean square error in states that it was not taught
    visited: float  # in states that it itself visits with latency
    returns: Returns  # with latency


@dataclass(frozen=True)
class Adapted:
    """A student, and how it does beside the policy that it was taught by."""

    policy: Any  # that copes; what it observes is the environment's own, and `knowledge`
    knowledge: tuple[str, ...]
    latency: LatencyModel
    frozen: Returns  # of the policy, without latency
    as_it_is: Returns  # of the policy, with it; where it is padded, with the latency as it was
    adapted: Returns  # of the student, with it; by other episodes than those that it was chosen by
    stages: tuple[Stage, ...]  # of the student; the best is taken
    best: int
    floor: float  # what doing nothing gets
    share: float
    steps_frozen: int  # recorded or given
    steps_latency: int  # in rounds
    seconds: float

    def kept(self, returns: Returns) -> float:
        """Of what the policy has without latency, above what counts as nothing."""
        share = (returns.mean - self.floor) / (self.frozen.mean - self.floor)
        return share if abs(share) > 5e-3 else 0.0  # not -0 %

    @property
    def took(self) -> bool:
        """Whether the cure took: enough is kept."""
        return self.kept(self.adapted) >= self.share

    @property
    def needed(self) -> bool:
        """Whether there was something to cure."""
        return self.kept(self.as_it_is) < self.share

    @property
    def at(self) -> str:
        """The latency in words."""
        low_s, high_s = float(min(self.latency.values_s)), self.longest_s
        if isinstance(self.latency, PerEpisode) and low_s != high_s:
            return f"{format_s(low_s)} to {format_s(high_s)} (the worst of them)"
        return format_s(high_s) if low_s == high_s else f"{format_s(low_s)} to {format_s(high_s)}"

    def summary(self) -> dict[str, Any]:
        """What came of it, as a file can hold it."""
        measured = {"frozen": self.frozen, "as_it_is": self.as_it_is, "adapted": self.adapted}
        return {
            "verdict": self.verdict,
            "took": self.took,
            "needed": self.needed,
            "latency": self.at,
            "latencies_s": sorted({float(min(self.latency.values_s)), self.longest_s}),
            "knowledge": list(self.knowledge),
            "kept_before": self.kept(self.as_it_is),
            "kept_after": self.kept(self.adapted),
            "share": self.share,
            "floor": self.floor,
            "bar": self.floor + self.share * (self.frozen.mean - self.floor),
            **{name: returns.summary() for name, returns in measured.items()},
            "best": self.best,
            "stages": [
                {
                    "pairs": stage.pairs,
                    "held_out": stage.held_out,
                    "visited": stage.visited,
                    **stage.returns.summary(),
                }
                for stage in self.stages
            ],
            "steps_frozen": self.steps_frozen,
            "steps_latency": self.steps_latency,
            "seconds": self.seconds,
        }

    @property
    def chooses(self) -> bool:
        """Whether actions are discrete: errors are then shares of other choices."""
        return isinstance(self.policy, QPolicy)

    @property
    def longest_s(self) -> float:
        return float(max(self.latency.values_s))

    @property
    def verdict(self) -> str:
        """One or two sentences."""
        at = self.at
        now, before = self.kept(self.adapted), self.kept(self.as_it_is)
        text = f"at {at} it keeps {now:.0%} of what it has without latency ({before:.0%} as it was)"
        if not self.needed:
            rest = "" if now >= before else "; keep yours"
            return (
                f"Not needed: the policy as it is keeps {before:.0%} at {at}; adapted "
                f"{now:.0%}{rest}."
            )
        if self.took:
            return f"It took: {text}."
        stage = self.stages[self.best]
        unit = "of all choices" if self.chooses else "of half an action's range"
        reach = (
            f"it errs by {stage.visited:.2g} {unit} where it goes itself, and by "
            f"{stage.held_out:.2g} in steps that it was not taught"
        )
        return f"It did not take: {text}; {reach}. {self._remedy()}"

    def _remedy(self) -> str:
        low, high = min(self.latency.values_s), max(self.latency.values_s)
        if low != high and not isinstance(self.latency, PerEpisode):
            return (
                "What is right at a switch is not known at capture where it may come sooner or "
                "later: let decisions wait for the longest latency (--pad)."
            )
        if len(self.stages) == 1:
            return "Try rounds in which the student acts with latency (--rounds)."
        return "Try more steps, more rounds or a shorter latency."
