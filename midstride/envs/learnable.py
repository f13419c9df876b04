"""What an environment is made from, and what it tells a learner beside its spaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from midstride.knowledge import Layout, check_features
from midstride.latency import OnScaleOf
from midstride.latency_text import Latency, latency_name, latency_text, read_latency, settled
from midstride.seconds import time_text
from midstride.settings import Settings
from midstride.timing import Thinker, Timing

Info = dict[str, Any]
Image = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Array = NDArray[np.floating]
# Observations -> actions, and what is worth keeping of how they were chosen.
Act = Callable[[Any], tuple[NDArray[Any], dict[str, NDArray[Any]]]]


@dataclass(frozen=True)
class Environment(Settings):
    """Settings of environments: everything that is needed to make them again."""

    kind: ClassVar[str] = "setting of the environment"
    recommended_agent: ClassVar[str] = "dqn"  # what to try first; any that fits will do
    filmed: ClassVar[str] = "pictures"  # how: see report/film.py
    times: ClassVar[tuple[str, ...]] = ()  # names of settings that are times
    bytes_each: ClassVar[int] = 400_000  # of memory that one of many takes, about (measured)

    task: str
    latency: Latency = "0"
    thinker: Thinker = "pipelined"
    """matters where a latency is longer than the period: pipelined takes an observation every
    period, so that several decisions are pending; serial takes the next one, at a multiple of the
    period, when its thought is finished"""
    knowledge: tuple[str, ...] = ()
    """what the agent knows of what is in flight: any of previous_action, pending_actions,
    selection_time, vector_to_go"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "knowledge", check_features(self.knowledge))
        super().__post_init__()
        object.__setattr__(self, "latency", settled(self.latency))

    def to_dict(self) -> dict[str, Any]:
        """All values as a file can hold them; an error for a latency that only Python can."""
        times = {name: time_text(getattr(self, name)) for name in self.times}
        return {**super().to_dict(), "latency": latency_text(self.latency), **times}

    def make(
        self,
        num_envs: int,
        threads: int | None = 1,
        render_mode: str | None = None,
        observe_switch: bool = False,
    ) -> LearnableEnvs:
        """Vector environments with same-step autoreset.

        observe_switch: whether `info` holds what would be observed at the switch
        """
        raise NotImplementedError

    def for_evaluation(self, seed: int) -> Self:
        """The environment that a policy is judged in, where that differs from training's."""
        return self

    def lived_at(self, latency: Any) -> Self:
        """The same at another latency, with observations as they are at its own (`OnScaleOf`)."""
        trained, lived = read_latency(self.latency), read_latency(latency)
        return replace(self, latency=OnScaleOf(trained, lived))

    def small(self) -> Self:
        """The same, quickly made: to look at, not to learn in."""
        return self

    @property
    def label(self) -> str:
        """A short name for what sets this environment apart."""
        thinker = "" if self.thinker == "pipelined" else f"-{self.thinker}"
        return f"{self.task}-latency_{latency_name(self.latency)}{thinker}"


@dataclass(frozen=True)
class Commands:
    """Columns of an action, after its continuous ones, that take one of a few joint settings."""

    settings: NDArray[np.floating]  # (settings, columns)
    tried: NDArray[np.floating]  # how often exploration tries each
    ends: int | None = None  # column of the whole action that, when on, silences all others


@dataclass(frozen=True)
class Hints:
    """What environments can tell a learner beside their spaces; all of it optional."""

    reward_scale: float = 1.0  # makes the largest reward of a period 1
    # Discount per second -> the lowest and the highest value that a state can have.
    value_bounds: Callable[[float], tuple[float, float]] | None = None
    commands: Commands | None = None
    # What an image ought to tell, (n, numbers), known in simulation; how much each number counts.
    auxiliary: Callable[[], NDArray[np.float32]] | None = None
    auxiliary_weights: NDArray[np.float32] | None = None
    # A policy to learn from at first: generator -> Act.
    demonstrator: Callable[[np.random.Generator], Act] | None = None
    rests: bool = False  # whether all is at rest while the policy thinks: then no switch is alive
    measure: str | None = None  # name of the share of episodes that succeed, if that is measured
    longest_episode: int | None = None  # in steps
    # Asks for what is observed and earned so many ticks after each capture (`Step`).
    observe_within: Callable[[tuple[int, ...]], None] | None = None


class LearnableEnvs(Protocol):
    """Vector environments, and what training needs to know of them."""

    num_envs: int
    layout: Layout
    timing: Timing
    hints: Hints
    metadata: dict[str, Any]
    single_observation_space: Any
    single_action_space: Any

    @property
    def camera_s(self) -> float:
        """Spent on pictures so far."""
        ...

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Info]: ...
    def step(self, actions: Any, /) -> tuple[Any, Any, Any, Any, Info]: ...
    def render(self) -> Any: ...
    def close(self) -> None: ...
