"""BPQL (Kim et al., Belief Projection-Based Q-Learning, NeurIPS 2023), the critic at the switch.

    y = R_i + gamma^H (min_j Qbar_j(s~_{i+1}, a') - alpha log pi(a'|x_{i+1})),  a' ~ pi(x_{i+1})
    L_Q = sum_j (Q_j(s~_i, a_i) - y)^2 / 2
    L_pi = alpha log pi(a|x_i) - min_j Q_j(s~_i, a),                         a ~ pi(x_i), Q frozen

The actor sees what it will see on the robot, x: late, with what is in flight. The critic, which is
only there in training, sees the state s~ in which the action comes into force (`switches.py`): it
is as small as without latency, and as quickly learned. Where the latency is at most a period its
values are exact. Beyond, what is pending beside a_i changes what follows, and the critic does not
see it: the authors' approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jax import Array
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.learn.agent_settings import AgentSettings, RunSettings
from midstride.learn.baselines.in_flight import draw_windows
from midstride.learn.baselines.rtac import OwnTargetSettings
from midstride.learn.baselines.switches import (
    Pairing,
    TellsLatency,
    check_pairs,
    losses_at_switch,
)
from midstride.learn.sac import SAC, Network
from midstride.learn.spaces import check_continuous


@dataclass(frozen=True)
class BPQLSettings(OwnTargetSettings):
    """Of BPQL."""

    agent: Literal["bpql"] = "bpql"
    """bpql: SAC whose critic sees the state in which an action comes into force (Kim 2023)"""

    @property
    def observes_switch(self) -> bool:
        return True


class BPQL(SAC):
    """An actor that sees late, a critic that does not."""

    Settings: ClassVar[type[AgentSettings]] = BPQLSettings

    def __init__(
        self, settings: Any, run: RunSettings, envs: LearnableEnvs, rng: np.random.Generator
    ) -> None:
        super().__init__(settings, run, envs, rng)
        self.pairing = Pairing(envs, self.row, self.base)

    def make_network(self, settings: Any, envs: LearnableEnvs, key: Array) -> Network:
        (columns,) = envs.single_observation_space.shape
        seen = (self.base + TellsLatency(envs).columns, self.size)
        return Network(settings, columns, self.size, key, seen)

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        check_continuous(settings.agent, envs)
        check_pairs(settings.agent, envs)

    def ready(self, steps: int) -> bool:
        held = min(self.replay.added, self.replay.length)
        return steps >= self.settings.learning_starts and held >= self.pairing.span

    def draw(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return draw_windows(self.replay, self.rng, shape, self.pairing.span, self.pairing.valid)

    def loss(self, online: Any, target: Any, steps: Any, keys: Any) -> tuple[Any, Any]:
        return losses_at_switch(self, online, target, self.pairing(steps), keys)
