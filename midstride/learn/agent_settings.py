"""What every agent, and every run, can be told. The settings of one agent are in its own file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from midstride.settings import Range, Settings

Share = Annotated[float, Range(0, 1)]
Count = Annotated[int, Range(1, 10**12)]
LivedAt = Annotated[
    str | float | None, "a latency such as 0, 25ms, 0.025 (seconds) or episode:0,25ms"
]


@dataclass(frozen=True)
class RunSettings(Settings):
    """How long, how many, how often watched: the same for every agent."""

    kind: ClassVar[str] = "setting of the run"

    steps: Count = 100_000
    """how many environment steps are taken, all environments together"""
    num_envs: Annotated[int, Range(1, 100_000)] = 16
    """how many environments are stepped together"""
    seed: Annotated[int, Range(0, 2**31)] = 0
    """starts everything random; the same seed on the same machine repeats exactly"""
    evaluate_every: Count = 10_000
    """environment steps between evaluations of the greedy policy"""
    evaluation_episodes: Annotated[int, Range(1, 10**6)] = 16
    """episodes of each evaluation; the last one has four times as many"""
    checkpoint_every: Count = 20_000
    """environment steps between checkpoints; what came after the last one is lost with a crash"""


@dataclass(frozen=True)
class AgentSettings(Settings):
    """What every agent can be told."""

    kind: ClassVar[str] = "setting of the agent"

    agent: str
    gamma_per_s: Annotated[float, Range(1e-6, 0.999999)] = 0.818
    """discount per second: a step of d seconds discounts by gamma^d (0.818 is 0.99 per 50 ms)"""
    learning_rate: Annotated[float, Range(1e-12, 1e3)] = 1e-3
    """step size of Adam at the start"""
    learning_rate_end: Share = 0.0
    """part of the learning rate that is left in the end; it falls linearly"""
    batch_size: Annotated[int, Range(1, 10**6)] = 256
    """transitions that each update learns from"""
    max_grad_norm: Annotated[float, Range(0)] = 10.0
    """gradients are clipped to this norm; 0: not at all"""

    @property
    def observes_switch(self) -> bool:
        """Whether it learns from what is observed at the switch."""
        return False

    @property
    def remembers(self) -> tuple[str, int]:
        """The setting that says how many transitions are held at once, and its value."""
        raise NotImplementedError

    @property
    def begins_after(self) -> int:
        """Environment steps before those that call for updates."""
        return 0

    def shared_by(self, memories: int) -> AgentSettings:
        """Those of each of several that hold what is remembered."""
        return self

    def updates_in(self, steps: int) -> int:
        """Updates that so many environment steps call for."""
        raise NotImplementedError

    @property
    def lived_at(self) -> str | float | None:
        """Latency at which steps are taken in training; None: that of the environment."""
        return None

    @property
    def recorded_in(self) -> str | None:
        """The run whose replay is learned from, without a step; None: steps are taken."""
        return None


@dataclass(frozen=True)
class ReplaySettings(AgentSettings):
    """What every agent that learns from a replay can be told."""

    target: Literal["full_period", "concurrent"] = "full_period"
    """full_period: bootstrap at the next observation (Algorithm 1); concurrent: at the switch"""
    update_every: Annotated[int, Range(1, 10**6)] = 4
    """environment steps per update; fewer learn more from the same experience, and take longer"""
    replay_size: Count = 200_000
    """transitions that are remembered"""
    target_tau: Share = 0.005
    """how much of the online network enters the target network at each update (Polyak)"""

    @property
    def observes_switch(self) -> bool:
        return self.target == "concurrent"

    @property
    def remembers(self) -> tuple[str, int]:
        return "replay_size", self.replay_size

    def updates_in(self, steps: int) -> int:
        return steps // self.update_every


@dataclass(frozen=True)
class HindsightSettings(ReplaySettings):
    """What agents can be told that learn in hindsight of a latency other than the one lived at."""

    hindsight_from: LivedAt = None
    """take the steps of training at this latency, 0 in the frozen world, and learn from them, in
    hindsight, what they would have been at the environment's latency (docs/hindsight.md)"""
    hindsight_run: str | None = None
    """folder of a run, lived at hindsight_from: learn from the replay that it kept, and take no
    step at all; steps then count updates only"""

    @property
    def lived_at(self) -> str | float | None:
        return self.hindsight_from

    @property
    def recorded_in(self) -> str | None:
        return self.hindsight_run


def check_sizes(settings: Any) -> None:
    """An error if a layer is empty, or if what learning waits for cannot be remembered."""
    if any(size < 1 for size in settings.hidden):
        raise ValueError(f"hidden layers need at least 1 unit, got {settings.hidden}")
    if settings.replay_size < settings.learning_starts:
        raise ValueError(
            f"replay_size must be at least learning_starts ({settings.learning_starts})"
        )
