"""How a training is spread over machines: what may be told, and what is checked before it starts.

A *round* is one step of all environments of a collector. A *block* is the updates that a round
calls for (`num_envs / update_every` of them): what is sampled, labelled and fitted at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from midstride.settings import Range, Settings

if TYPE_CHECKING:
    from midstride.learn.agents import Training

SPREAD = ("qtopt",)  # agents whose labels and updates are computed apart


@dataclass(frozen=True)
class ScaleSettings(Settings):
    """How many of each role, and how far one may run ahead of another."""

    kind: ClassVar[str] = "setting of the scale"

    collectors: Annotated[int, Range(1, 100_000)] = 1
    """processes that act and take steps, each in num_envs environments of its own"""
    updaters: Annotated[int, Range(1, 100_000)] = 1
    """processes that compute Bellman labels, by the cross-entropy method on target networks"""
    replays: Annotated[int, Range(1, 10_000)] = 1
    """processes that hold transitions; collectors are dealt out to them in turn"""
    send_every: Annotated[int, Range(1, 10_000)] = 1
    """steps that a collector takes with all its environments before it sends them and asks for
    newer weights; more: fewer messages, older weights"""
    window: Annotated[int | None, Range(1, 100_000)] = None
    """blocks of updates that are sampled, labelled or fitted at once (default: updaters + 2); more:
    nobody waits, older labels"""
    ahead: Annotated[int | None, Range(1, 10**6)] = None
    """blocks of updates that collecting may be ahead of fitting before it waits (default: as many
    as keep every collector busy)"""
    max_staleness: Annotated[int, Range(1, 10**9)] = 1_000
    """updates after which a label is too old: it is made again, by newer networks"""
    keep_every: Annotated[int, Range(1, 10**6)] = 16
    """blocks after which the fitter's state is kept elsewhere; what came after is lost with it"""
    lock_step: bool = False
    """one collector, one updater, one replay, in the order of a local training: the same numbers"""
    cores: Annotated[float, Range(0.01, 1024)] = 1.0
    """cores that each collector, each updater and the fitter takes; less than 1: they share"""

    def __post_init__(self) -> None:
        super().__post_init__()
        many = {name: getattr(self, name) for name in ("collectors", "updaters", "replays")}
        if self.lock_step and set(many.values()) != {1}:
            raise ValueError(
                "lock_step is of one collector, one updater and one replay: leave the others out"
            )
        if self.lock_step and self.send_every != 1:
            raise ValueError("lock_step goes round by round: use send_every 1")
        if self.replays > self.collectors:
            raise ValueError(
                f"replays ({self.replays}) hold what collectors send, and there are "
                f"{self.collectors}: use as many at most"
            )

    @property
    def blocks_at_once(self) -> int:
        if self.lock_step:
            return 1
        return self.updaters + 2 if self.window is None else self.window

    @property
    def blocks_ahead(self) -> int:
        if self.ahead is not None:
            return self.ahead
        return self.blocks_at_once + 2 * self.collectors * self.send_every

    @property
    def cores_needed(self) -> float:
        """Of all roles together; replays and the evaluator mostly wait."""
        return self.cores * (self.collectors + self.updaters + 1)

    def check_cores(self, there_are: float) -> None:
        if self.cores_needed > there_are + 1e-9:
            raise ValueError(
                f"{self.collectors} collector(s), {self.updaters} updater(s) and a fitter at "
                f"{self.cores:g} core(s) each need {self.cores_needed:g} cores, and there are "
                f"{there_are:g}: ask for fewer, or let them share with --cores "
                f"{max(0.01, there_are / (self.collectors + self.updaters + 1)):.2g}"
            )


def check_spread(training: Training) -> None:
    """An error if such a training cannot be spread over machines."""
    name = training.agent.agent
    if name not in SPREAD:
        raise ValueError(
            f"{name} labels and fits in one piece: only {', '.join(SPREAD)} is spread over "
            "machines; whole trainings of any agent run side by side with midstride sweep "
            "--engine ray"
        )


@dataclass(frozen=True)
class Work:
    """What of a training the coordinator must know: how much, how often, how many at once."""

    steps: int  # in all
    num_envs: int  # of each collector
    at_once: int  # updates of a block
    calls_for: Callable[[int], float]  # environment steps -> updates, and parts of one
    labels_each: float  # transitions that are labelled for an update
    next_key: Callable[[Any], Any]  # of the chain of random keys that labels are made with
    auxiliary_blocks: int = 0  # of the auxiliary head alone, before all else
    offline_blocks: int = 0  # on demonstrations, before the first step of its own
    evaluate_every: int = 10**12
    checkpoint_every: int = 10**12
