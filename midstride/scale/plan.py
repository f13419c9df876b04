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

SPREAD = ("qtopt", "sac", "dqn")  # agents that learn from what any policy did, step by step


@dataclass(frozen=True)
class ScaleSettings(Settings):
    """How many of each role, and how far one may run ahead of another."""

    kind: ClassVar[str] = "setting of the scale"

    collectors: Annotated[int, Range(1, 100_000)] = 1
    """processes that act and take steps, each in num_envs environments of its own"""
    updaters: Annotated[int, Range(1, 100_000)] = 1
    """processes that compute Bellman labels, by the cross-entropy method on target networks (qtopt;
    sac and dqn label where they fit)"""
    fitters: Annotated[int, Range(1, 1_000)] = 1
    """processes that take the gradient steps, in step: each has an equal part of every batch, and
    all apply the mean of their gradients"""
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
    """blocks after which the fitters' state is kept elsewhere; what came after is lost with one of
    them"""
    lock_step: bool = False
    """one of each role, in the order of a local training: the same numbers"""
    cores: Annotated[float, Range(0.01, 1024)] = 1.0
    """cores that each collector, updater and fitter takes; less than 1: they share"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lock_step and {self.collectors, self.updaters, self.fitters, self.replays} != {1}:
            raise ValueError(
                "lock_step is of one collector, one updater, one fitter and one replay: leave the "
                "others out"
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

    def check_cores(self, there_are: float, training: Training) -> None:
        """An error if the roles ask for more cores than there are.

        Replays and the evaluator mostly wait, and are not counted.
        """
        roles = {"collector(s)": self.collectors, "fitter(s)": self.fitters}
        if labels_apart(training):
            roles = {"updater(s)": self.updaters, **roles}
        count = sum(roles.values())
        if self.cores * count > there_are + 1e-9:
            said = ", ".join(f"{many} {role}" for role, many in roles.items())
            raise ValueError(
                f"{said} at {self.cores:g} core(s) each need {self.cores * count:g} cores, and "
                f"there are {there_are:g}: ask for fewer, or let them share with --cores "
                f"{max(0.01, there_are / count):.2g}"
            )


def labels_apart(training: Training) -> bool:
    """Whether labels are computed by updaters, and not where they are fitted."""
    return training.agent.agent == "qtopt"


def check_spread(training: Training, scale: ScaleSettings) -> None:
    """An error in one sentence if such a training cannot be spread so over machines."""
    name, agent = training.agent.agent, training.agent.to_dict()
    if name not in SPREAD:
        raise ValueError(
            f"{name} is not spread over machines, {', '.join(SPREAD)} are: whole trainings of any "
            "agent run side by side with midstride sweep --engine ray"
        )
    if agent.get("prioritised"):
        raise ValueError(
            "prioritised sampling needs the errors of every update before the next is sampled, and "
            "replay is on another machine: leave it out"
        )
    if training.agent.recorded_in is not None:
        raise ValueError(
            "hindsight_run takes no steps, so there is nothing to spread: train it "
            "without --engine ray"
        )
    if scale.updaters > 1 and not labels_apart(training):
        raise ValueError(f"{name} labels where it fits: leave out updaters ({scale.updaters})")
    if scale.replays > 1 and agent.get("normalise"):
        raise ValueError(
            f"{name} normalises by what all collectors saw, which one replay knows: use replays 1, "
            "or normalise false"
        )
    size = agent["batch_size"]
    if size % scale.fitters:
        fits = [n for n in range(1, size + 1) if size % n == 0]
        near = min(fits, key=lambda n: (abs(n - scale.fitters), n))
        raise ValueError(
            f"{scale.fitters} fitters have equal parts of every batch, and batch_size is {size}: "
            f"use {near} fitters, or a batch_size of {-(-size // scale.fitters) * scale.fitters}"
        )


@dataclass(frozen=True)
class Work:
    """What of a training the coordinator must know: how much, how often, how many at once."""

    steps: int  # in all
    num_envs: int  # of each collector
    at_once: int  # updates of a block
    calls_for: Callable[[int], float]  # environment steps -> updates, and parts of one
    labels_each: float  # transitions that are labelled apart for an update; 0: no updaters
    next_key: Callable[[Any], Any]  # of the chain of random keys that labels are made with
    begins_after: int = 0  # steps before those that call for updates
    auxiliary_blocks: int = 0  # of the auxiliary head alone, before all else
    offline_blocks: int = 0  # on demonstrations, before the first step of its own
    evaluate_every: int = 10**12
    checkpoint_every: int = 10**12
