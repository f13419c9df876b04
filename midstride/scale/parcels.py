"""What the coordinator keeps count of: actors, blocks, rounds, weights, evaluations, calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from midstride.scale.cluster import Reference


class Desk(Protocol):
    """What is not for actors to do: how they are made, and what is written down."""

    def arguments(self, role: str, place: int, name: int) -> tuple[Any, ...]:
        """To make an actor with."""
        ...

    def met(self, role: str, place: int, record: dict[str, Any]) -> None:
        """An actor is set up, and has said what it is; an error if it does not fit."""
        ...

    def evaluated(self, evaluation: Evaluation, episodes: Any, figures: dict[str, float]) -> None:
        """An evaluation has ended: write it down."""
        ...

    def save(self, state: Any, memories: list[Any], about: dict[str, Any]) -> None:
        """Write a checkpoint."""
        ...

    def tell(self) -> None:
        """Something has happened: show it, if it is time."""
        ...


@dataclass(eq=False)
class Member:
    """An actor in its place."""

    role: str
    place: int
    name: int  # no two actors of a run have the same
    actor: Any
    is_ready: bool = False
    is_busy: bool = False
    held: int = 0  # by a memory
    can_sample: bool = False  # a memory
    generation: int = -1  # of a fitter: that whose state it has (`Books.generation`)


@dataclass(eq=False)
class Block:
    """Updates on their way: sampled, labelled, fitted, one after the other."""

    updates: int
    is_auxiliary: bool = False
    stage: str = "sampling"  # sampled, labelling, labelled, fitting
    fitted: Sequence[Reference] = ()  # a part for each fitter
    judged: Reference = None
    labels: Reference = None
    fit_key: Any = None
    next_key: Any = None
    made_at: int = 0  # updates of the weights that labelled it
    generation: int = 0  # of the fitters that made these weights
    is_dropped: bool = False


class Round(NamedTuple):
    """Steps that a collector took, on their way to a memory."""

    place: int  # of the collector
    owner: int  # its name
    first: int  # number of the first round
    length: int
    data: Reference


class Published(NamedTuple):
    """Weights that others may use."""

    version: int
    updates: int
    number: int  # of blocks fitted by then, after preparation
    acting: Reference
    judging: Reference


@dataclass(eq=False)
class Evaluation:
    """Of the policy after some steps, when all updates that they called for are done."""

    steps: int
    after: int  # updates
    training: float | None
    seen: Any = None  # what a policy must know of these steps, beside its weights
    losses: dict[str, tuple[float, int]] = field(default_factory=dict)
    weights: Any = None
    episodes: Any = None
    is_last: bool = False
    is_under_way: bool = False


class Call(NamedTuple):
    kind: str
    member: Member
    about: Any
    data: Sequence[Reference]
    generation: int  # of the fitters, when it was made
