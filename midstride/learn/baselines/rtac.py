"""RTAC (Ramstedt & Pal, Real-Time Reinforcement Learning, NeurIPS 2019): latency of one period.

    y = r - alpha log pi(a|x) + gamma^H min_j Vbar_j(s', a),          a ~ pi(x), fresh
    L_V = sum_j (V_j(x) - y)^2 / 2
    L_pi = alpha log pi(a|x) - gamma^H min_j V_j(s', a),              V frozen

x = (s, u): u is in flight while a is chosen, so s' does not depend on a, and the next augmented
state is known for every a: the one that was lived, with a in place of what was decided then. No
critic of (x, a) is needed, and the target is on-policy from off-policy data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from midstride.envs.learnable import LearnableEnvs
from midstride.learn.agent_settings import AgentSettings, RunSettings
from midstride.learn.baselines.in_flight import InFlight, check_replaceable, whole_periods
from midstride.learn.sac import SAC, Network, SoftSettings, frozen_critics
from midstride.learn.spaces import check_continuous
from midstride.learn.targets import full_period_target


@dataclass(frozen=True)
class OwnTargetSettings(SoftSettings):
    """What agents of a kin to SAC share whose target is their own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target != "full_period":
            raise ValueError(f"{self.agent} has a target of its own: leave out target")


@dataclass(frozen=True)
class RTACSettings(OwnTargetSettings):
    """Of RTAC."""

    agent: Literal["rtac"] = "rtac"
    """rtac: SAC with a critic of what is in flight, for a latency of one period (Ramstedt 2019)"""


class RTAC(SAC):
    """Real-time actor-critic: V(s, u) in place of Q."""

    Settings: ClassVar[type[AgentSettings]] = RTACSettings

    def __init__(
        self, settings: Any, run: RunSettings, envs: LearnableEnvs, rng: np.random.Generator
    ) -> None:
        super().__init__(settings, run, envs, rng)
        self.in_flight = InFlight(envs, self.size)

    def make_network(self, settings: Any, envs: LearnableEnvs, key: Array) -> Network:
        (columns,) = envs.single_observation_space.shape
        return Network(settings, columns, self.size, key, seen=(columns, 0))

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        check_continuous(settings.agent, envs)
        if whole_periods(envs) != 1:
            raise ValueError(
                "rtac is for a latency that is always one period: use rtac_substep for shorter and "
                "varying ones, dcac for several periods"
            )
        check_replaceable(settings.agent, envs)

    def loss(self, online: Any, target: Any, steps: Any, keys: Any) -> tuple[Any, Any]:
        x, frozen = steps["observation_capture"], jax.lax.stop_gradient
        temperature = frozen(jnp.exp(online.log_temperature))
        action, density = online.sample(x, keys[0])
        x_next = self.in_flight.replaced(steps["observation_next"], [action], steps["normal"])

        def soft_value(network: Any) -> Any:
            """Of what is in flight, if `action` had been decided."""
            value = state_values(network, x_next).min(axis=0)
            reward = steps["reward_before_switch"] + steps["reward_after_switch"]
            soft, ended = reward - temperature * density, steps["terminated"]
            gamma, elapsed_s = self.settings.gamma_per_s, steps["period_s"]
            return full_period_target(soft, ended, value, gamma, elapsed_s)

        v = state_values(online, x)
        critic_loss = 0.5 * ((v - frozen(soft_value(target))) ** 2).mean(axis=1).sum()
        # The reward does not depend on the action: its gradient is 0.
        actor_loss = -soft_value(frozen_critics(online)).mean()
        return self.total_loss(online, v, critic_loss, actor_loss, density)


def state_values(network: Network, x: Array) -> Array:
    """V by each critic, (critics, n): there is no action beside those in x."""
    return network.values(x, jnp.zeros((len(x), 0)))
