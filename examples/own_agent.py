"""A baseline of your own in one file: SAC that is charged for jerky commands.

What many try first when a robot shakes: make the policy smooth, and hope that it then stands the
latency. An agent is its settings and a class; here the loss alone is other than SAC's:

    L = L_SAC + smoothness |mean action(x) - action in flight|^2

    python examples/own_agent.py gym:InvertedDoublePendulum-v5 smooth --latency 50ms \\
        --knowledge previous_action --steps 10_000

Everything else comes with the name: options and help, checkpoints, evaluation, films, sweeps.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from midstride.envs.learnable import LearnableEnvs
from midstride.learn.agent_settings import AgentSettings, RunSettings
from midstride.learn.agents import add_agent
from midstride.learn.sac import SAC, SACSettings
from midstride.settings import Range


@dataclass(frozen=True)
class SmoothSettings(SACSettings):
    """Of smooth SAC."""

    agent: Literal["smooth"] = "smooth"  # type: ignore[assignment]
    """smooth: SAC that pays for the distance from the action in flight"""
    smoothness: Annotated[float, Range(0)] = 1.0
    """what a squared distance of 1 costs, in units of an action's half range"""


class Smooth(SAC):
    """Soft actor-critic that would rather go on with what it does."""

    Settings: ClassVar[type[AgentSettings]] = SmoothSettings

    def __init__(
        self, settings: Any, run: RunSettings, envs: LearnableEnvs, rng: np.random.Generator
    ) -> None:
        super().__init__(settings, run, envs, rng)
        self.in_flight = envs.layout.slices["previous_action"]

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        super().check(settings, envs)
        if "previous_action" not in envs.layout.features:
            raise ValueError(
                "smooth compares with the action in flight: --knowledge previous_action"
            )

    def loss(self, online: Any, target: Any, steps: Any, keys: Any) -> tuple[Any, Any]:
        total, measured = super().loss(online, target, steps, keys)
        x, normal = steps["observation_capture"], steps["normal"]
        mean, _ = jax.vmap(online.actor)(x)
        # Observations are normalised; an action is not.
        in_flight = (
            x[:, self.in_flight] / normal.scale[self.in_flight] + normal.mean[self.in_flight]
        )
        jerk = ((jnp.tanh(mean) - in_flight) ** 2).mean()
        return total + self.settings.smoothness * jerk, {**measured, "auxiliary": jerk}


add_agent("smooth", Smooth)

if __name__ == "__main__":
    from midstride.cli import main

    sys.exit(main(["train", *sys.argv[1:]]))
