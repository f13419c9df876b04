"""Transitions from switch to switch, for critics of the state in which an action comes into force.

From switch to switch, concurrent control is the blocking world of the same period: latency only
limits what the actor sees. Decision i is made on x_i and comes into force in s~_i; with rewards
split at the switches,

    R_i = r_after_i + gamma^(H - t_i) r_before_{i+1},    s~_i -- a_i --> s~_{i+1},    R_i

after H - t_i + t_{i+1} seconds. Of a latency within the period the environment tells s~_i; of one
of k whole periods it is what is captured k periods later. Where t varies, so does the time for
which an action is in force, and critics at the switch see t, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.learn.baselines.in_flight import whole_periods
from midstride.learn.replay import Row
from midstride.learn.sac import SAC, frozen_critics
from midstride.learn.targets import after_switch_target, until_switch_target


class Switched(NamedTuple):
    """Transitions from switch to switch, and what was seen when their actions were chosen."""

    x: Any  # what the actor saw, (n, columns)
    action: Any
    state: Any  # at the switch, (n, base columns), and the latency where it varies
    reward: Any  # until the next capture
    terminated: Any  # before the next capture
    execution_s: Any  # from the switch to the next capture
    reward_next: Any  # from there to the next switch
    ended_next: Any  # between them
    latency_next_s: Any
    x_next: Any
    state_next: Any  # at the next switch

    def target(self, value_next: Array, gamma_per_s: float) -> Array:
        """y = R + gamma^(seconds from switch to switch) value_next."""
        chex.assert_equal_shape([self.reward, value_next])
        at_capture = until_switch_target(
            self.reward_next, self.ended_next, value_next, gamma_per_s, self.latency_next_s
        )
        return after_switch_target(
            self.reward, self.terminated, at_capture, gamma_per_s, self.execution_s
        )


class TellsLatency:
    """The latency beside states at the switch, for critics, where it varies."""

    def __init__(self, envs: LearnableEnvs) -> None:
        low, high = envs.timing.latency_bounds_ticks
        self.columns, self._longest_s = int(low != high), envs.timing.latency_high_s

    def __call__(self, state: Any, latency_s: Any) -> Any:
        """States (n, columns), wider by a share of the longest latency."""
        if not self.columns:
            return state
        return jnp.concatenate([state, latency_s[:, None] / self._longest_s], axis=1)


class Pairing:
    """How steps of a replay make transitions from switch to switch."""

    def __init__(self, envs: LearnableEnvs, row: Row, base: int) -> None:
        """base: columns that the environment itself observes"""
        self.periods, self.row, self.base = whole_periods(envs), row, base
        self._told = TellsLatency(envs)
        self.span = 2 if self.periods is None else self.periods + 1

    def valid(self, windows: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which windows (n, span, width) begin with a decision that came into force."""
        steps = self.row.unpack(windows)
        done = steps["terminated"] | steps["truncated"]
        if self.periods is not None:
            return np.asarray(~done[:, :-1].any(axis=1))
        late = steps["latency_s"][:, 0] >= steps["period_s"][:, 0]
        return np.asarray(~steps["truncated"][:, 0] & ~(steps["terminated"][:, 0] & late))

    def state(self, steps: Any) -> Any:
        """In which the first decision of each window comes into force, (n, base columns)."""
        if self.periods is not None:
            return steps["observation_capture"][:, -1, : self.base]
        return steps["observation_switch"][:, 0, : self.base]

    def __call__(self, steps: Any) -> Switched:
        """Of the first decision of each window; steps: fields (n, span, ...), normalised."""
        first, last = ({name: steps[name][:, at] for name in self.row.places} for at in (0, -1))
        both = {
            "x": first["observation_capture"],
            "action": first["action"],
            "x_next": first["observation_next"],
            "state": self._told(self.state(steps), first["latency_s"]),
        }
        if self.periods is not None:
            nothing = jnp.zeros_like(last["period_s"])
            return Switched(
                **both,
                reward=last["reward_before_switch"] + last["reward_after_switch"],
                terminated=last["terminated"],
                execution_s=last["period_s"],
                reward_next=nothing,
                ended_next=nothing > 0,
                latency_next_s=nothing,
                state_next=last["observation_next"][:, : self.base],
            )
        until_s = jnp.minimum(first["latency_s"], first["period_s"])
        return Switched(
            **both,
            reward=first["reward_after_switch"],
            terminated=first["terminated"],
            execution_s=first["period_s"] - until_s,
            reward_next=last["reward_before_switch"],
            ended_next=last["terminated"] & (last["latency_s"] >= last["period_s"]),
            latency_next_s=jnp.minimum(last["latency_s"], last["period_s"]),
            state_next=self._told(last["observation_switch"][:, : self.base], last["latency_s"]),
        )


def losses_at_switch(
    agent: SAC, online: Any, target: Any, met: Switched, keys: Any
) -> tuple[Any, Any]:
    """SAC's losses with critics of (s~, a); the actor sees `met.x`."""
    frozen = jax.lax.stop_gradient
    temperature = frozen(jnp.exp(online.log_temperature))
    action, density = online.sample(met.x_next, keys[0])
    value = target.values(met.state_next, action).min(axis=0) - temperature * density
    y = frozen(met.target(value, agent.settings.gamma_per_s))
    q = online.values(met.state, met.action)
    critic_loss = 0.5 * ((q - y) ** 2).mean(axis=1).sum()
    action, density = online.sample(met.x, keys[1])
    value = frozen_critics(online).values(met.state, action).min(axis=0)
    actor_loss = (temperature * density - value).mean()
    return agent.total_loss(online, q, critic_loss, actor_loss, density)


def check_in_time(agent: str, envs: LearnableEnvs, otherwise: str) -> None:
    """An error unless every decision comes into force before the next capture, or at it."""
    if not envs.timing.arrives_in_time:
        raise ValueError(
            f"{agent} needs the state at the switch in every period, and with a latency longer "
            f"than the period, or with lost decisions, there is none: {otherwise}"
        )
    if envs.hints.rests:
        raise ValueError(f"{agent} is for concurrent control: while all rests, no switch is alive")


def check_pairs(agent: str, envs: LearnableEnvs) -> None:
    """An error unless the state in which each decision comes into force can be told."""
    if whole_periods(envs) is None:
        check_in_time(agent, envs, "give a latency within the period, or of whole periods")
