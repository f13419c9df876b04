"""Sub-step RTAC: RTAC for a latency within the period, fixed or varying, with two heads.

    V(x_i)       <- r_before - alpha log pi(a|x_i) + gamma^(t_AS) min_j Wbar_j(s~_i, a),  a fresh
    W(s~_i, a_i) <- r_after + gamma^(H - t_AS) min_j Vbar_j(x_{i+1}),                  a_i as lived
    L_pi = alpha log pi(a|x_i) - gamma^(t_AS) min_j W_j(s~_i, a),                        W frozen

s~_i is the state at the switch: until then nothing depends on what is decided, so a fresh decision
can be valued there; after it the one that was lived counts. Where t_AS varies, W sees it too. RTAC
is the case t_AS = H, where W is V of the next capture, and SAC with a value network (Haarnoja et
al., 2018, the first form) the case t_AS = 0. Of ours; the operators are `to_capture` and
`to_switch` of theory/tabular.py, on values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from midstride.envs.learnable import LearnableEnvs
from midstride.learn.agent_settings import AgentSettings
from midstride.learn.baselines.rtac import OwnTargetSettings
from midstride.learn.baselines.switches import TellsLatency, check_in_time
from midstride.learn.sac import SAC, Critic, Network, frozen_critics
from midstride.learn.spaces import check_continuous
from midstride.learn.targets import after_switch_target, until_switch_target


@dataclass(frozen=True)
class SubstepSettings(OwnTargetSettings):
    """Of sub-step RTAC."""

    agent: Literal["rtac_substep"] = "rtac_substep"
    """rtac_substep: RTAC with a second critic at the switch, for any latency within the period"""

    @property
    def observes_switch(self) -> bool:
        return True


class TwoHeads(Network):
    """The critics are W(s~, a), at the switch; those of V(x), at the capture, are beside them."""

    at_capture: list[Critic]

    def __init__(
        self, settings: Any, columns: int, actions: int, key: Array, seen: tuple[int, int]
    ) -> None:
        super().__init__(settings, columns, actions, key, seen)
        keys = jax.random.split(jax.random.fold_in(key, 1))
        hidden, norm = settings.hidden, settings.layer_norm
        self.at_capture = [Critic(columns, hidden, 0, norm, k) for k in keys]

    def capture_values(self, x: Array) -> Array:
        """V by each critic, (critics, n)."""
        nothing = jnp.zeros(0)
        return jnp.stack([jax.vmap(lambda row, c=c: c(row, nothing))(x) for c in self.at_capture])


class SubstepRTAC(SAC):
    """Values at captures and at switches."""

    Settings: ClassVar[type[AgentSettings]] = SubstepSettings

    def make_network(self, settings: Any, envs: LearnableEnvs, key: Array) -> TwoHeads:
        (columns,) = envs.single_observation_space.shape
        self.told = TellsLatency(envs)
        seen = (self.base + self.told.columns, self.size)
        return TwoHeads(settings, columns, self.size, key, seen)

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        check_continuous(settings.agent, envs)
        check_in_time(settings.agent, envs, "dcac is for several whole periods")

    def loss(self, online: Any, target: Any, steps: Any, keys: Any) -> tuple[Any, Any]:
        frozen, gamma = jax.lax.stop_gradient, self.settings.gamma_per_s
        x, switch = steps["observation_capture"], steps["observation_switch"][:, : self.base]
        at_switch = self.told(switch, steps["latency_s"])
        temperature = frozen(jnp.exp(online.log_temperature))
        until_s = jnp.minimum(steps["latency_s"], steps["period_s"])
        never = steps["terminated"] & (steps["latency_s"] >= steps["period_s"])
        action, density = online.sample(x, keys[0])

        def soft_value(network: Any) -> Any:
            """V(x), if `action` is decided."""
            value = network.values(at_switch, action).min(axis=0)
            before = steps["reward_before_switch"]
            y = until_switch_target(before, never, value, gamma, until_s)
            return y - temperature * density

        following = target.capture_values(steps["observation_next"]).min(axis=0)
        y_switch = after_switch_target(
            steps["reward_after_switch"],
            steps["terminated"],
            following,
            gamma,
            steps["period_s"] - until_s,
        )
        v, w = online.capture_values(x), online.values(at_switch, steps["action"])
        # What ended before the switch came tells nothing of the decision.
        wrong = jnp.where(never, 0.0, w - frozen(y_switch))
        critic_loss = 0.5 * (wrong**2).mean(axis=1).sum()
        critic_loss += 0.5 * ((v - frozen(soft_value(target))) ** 2).mean(axis=1).sum()
        actor_loss = -soft_value(frozen_critics(online)).mean()
        return self.total_loss(online, w, critic_loss, actor_loss, density)
