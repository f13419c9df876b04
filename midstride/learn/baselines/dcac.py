"""DC/AC (Bouteiller et al., Reinforcement Learning with Random Delays, ICLR 2021): k pending.

    a_j ~ pi(x_j),  x_{j+1} = s_{j+1} with the fresh a_0 ... a_j in flight,           j = 0 ... k-1
    y = sum_j gamma^(jH) (r_j - alpha log pi(a_j|x_j)) + gamma^(kH) min Vbar(x_k)
    L_V = sum (V(x_0) - y)^2 / 2,   L_pi = -y with V frozen

With a latency of k periods nothing that is decided now changes the next k states. So k steps of
replay are also k steps of the present policy, once what was decided in them is drawn anew: k-step
returns without a correction. With k = 1 it is RTAC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.learn.agent_settings import AgentSettings, RunSettings
from midstride.learn.baselines.in_flight import (
    InFlight,
    check_replaceable,
    draw_windows,
    whole_periods,
)
from midstride.learn.baselines.rtac import OwnTargetSettings, state_values
from midstride.learn.sac import SAC, Network, frozen_critics
from midstride.learn.spaces import check_continuous


@dataclass(frozen=True)
class DCACSettings(OwnTargetSettings):
    """Of DC/AC."""

    agent: Literal["dcac"] = "dcac"
    """dcac: RTAC for a latency of several whole periods (Bouteiller 2021)"""


class DCAC(SAC):
    """Delay-correcting actor-critic: k-step returns of resampled decisions."""

    Settings: ClassVar[type[AgentSettings]] = DCACSettings

    def __init__(
        self, settings: Any, run: RunSettings, envs: LearnableEnvs, rng: np.random.Generator
    ) -> None:
        super().__init__(settings, run, envs, rng)
        self.in_flight, self.periods = InFlight(envs, self.size), whole_periods(envs) or 1

    def make_network(self, settings: Any, envs: LearnableEnvs, key: Array) -> Network:
        (columns,) = envs.single_observation_space.shape
        return Network(settings, columns, self.size, key, seen=(columns, 0))

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        check_continuous(settings.agent, envs)
        if not whole_periods(envs):
            raise ValueError(
                "dcac is for a latency that is always the same whole number of periods: use "
                "rtac_substep for shorter and varying ones"
            )
        check_replaceable(settings.agent, envs)

    def ready(self, steps: int) -> bool:
        held = min(self.replay.added, self.replay.length)
        return steps >= self.settings.learning_starts and held >= self.periods

    def draw(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Random windows (*shape, k, width); where an episode ends in one, the return ends too."""
        span = self.periods
        return draw_windows(
            self.replay, self.rng, shape, span, lambda found: np.ones(len(found), bool)
        )

    def loss(self, online: Any, target: Any, steps: Any, keys: Any) -> tuple[Any, Any]:
        frozen, gamma = jax.lax.stop_gradient, self.settings.gamma_per_s
        temperature = frozen(jnp.exp(online.log_temperature))
        draws = jax.random.split(keys[1], self.periods)[1:]
        first = last = x = steps["observation_capture"][:, 0]
        goes_on = jnp.ones(len(x), bool)
        total, discount, bootstraps = jnp.zeros(len(x)), jnp.ones(len(x)), goes_on
        actions: list[Array] = []
        densities: list[Array] = []
        for j, key in enumerate([keys[0], *draws]):
            now = {name: steps[name][:, j] for name in self.row.places}
            action, density = online.sample(x, key)
            actions.append(action)
            densities.append(density)
            reward = now["reward_before_switch"] + now["reward_after_switch"]
            total += jnp.where(goes_on, discount * (reward - temperature * density), 0.0)
            discount = jnp.where(goes_on, discount * gamma ** now["period_s"], discount)
            x = self.in_flight.replaced(now["observation_next"], actions, steps["normal"])
            last = jnp.where(goes_on[:, None], x, last)
            bootstraps &= ~(goes_on & now["terminated"])
            goes_on &= ~(now["terminated"] | now["truncated"])

        def soft_value(network: Any) -> Any:
            value = state_values(network, last).min(axis=0)
            return total + discount * jnp.where(bootstraps, value, 0.0)

        v = state_values(online, first)
        critic_loss = 0.5 * ((v - frozen(soft_value(target))) ** 2).mean(axis=1).sum()
        actor_loss = -soft_value(frozen_critics(online)).mean()
        return self.total_loss(online, v, critic_loss, actor_loss, densities[0])
