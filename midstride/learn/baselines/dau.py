"""DAU (Tallec et al., Making Deep Q-learning methods robust to time discretization, ICML 2019).

    q(x, a) = V(x) + H (A(x, a) - max_b A(x, b)),     y = r + gamma^H Vbar(x')

As periods become short, what one action is worth more than another becomes small beside what the
state is worth: of the order of H. A is that difference per second. V(x) is the maximum of q by
construction, so no action is chosen to bootstrap. The rest is DQN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from midstride.learn.agent_settings import AgentSettings
from midstride.learn.dqn import DQN, DQNSettings, Head, td_loss
from midstride.learn.targets import bellman_target


@dataclass(frozen=True)
class DAUSettings(DQNSettings):
    """Of DAU."""

    agent: Literal["dau"] = "dau"  # type: ignore[assignment]
    """dau: DQN with advantages per second, for short periods (Tallec 2019)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dueling:
            raise ValueError("dau has an advantage of its own: leave out dueling")


class Advantages(eqx.Module):
    """V(x) and A(x, .), in networks of their own: errors of both are of the same size."""

    head: Head  # A, which acts
    state: Head  # V

    def advantage(self, x: Array) -> Array:
        """A(x, .), 0 for the best action."""
        found = self.head(x)
        return found - found.max()

    def value(self, x: Array) -> Array:
        return self.state(x)[0]


class DAU(DQN):
    """Deep advantage updating: Q-learning whose advantages do not shrink with the period."""

    Settings: ClassVar[type[AgentSettings]] = DAUSettings

    def make_network(self, settings: Any, columns: int, seed: int) -> eqx.Module:
        keys, hidden = jax.random.split(jax.random.key(seed)), settings.hidden
        return Advantages(
            Head(columns, hidden, self.actions, False, keys[0]),
            Head(columns, hidden, 1, False, keys[1]),
        )

    def policy_of(self, weights: Any) -> Any:
        policy = super().policy_of(weights)
        policy.weights = {n: w for n, w in policy.weights.items() if n.startswith("head.")}
        return policy

    def loss(self, online: Any, target: Any, batch: Any) -> tuple[Any, Any]:
        steps = self.row.unpack(batch["transitions"])
        x = steps["observation_capture"]
        advantages = jax.vmap(online.advantage)(x)
        chosen = jnp.take_along_axis(advantages, steps["action"][:, None], axis=1)[:, 0]
        q = jax.vmap(online.value)(x) + steps["period_s"] * chosen
        y = bellman_target(self.settings, steps, jax.vmap(target.value))
        return td_loss(q, y, batch.get("weights", 1.0))
