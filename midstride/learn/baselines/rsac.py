"""Recurrent SAC: an LSTM finds out by itself what is in flight (Ni et al., 2022).

    h_i = LSTM(h_{i-1}, x_i),   z = (x, h)
    y = r + gamma^H (min_j Qbar_j(z', a') - alpha log pi(a'|z')),  L_Q, L_pi as of SAC, with z for x

Learned from segments of episodes, as recurrent DQN is: from the state that was stored when they
were lived, warmed up by a few steps without learning (Kapturowski et al., 2019). One LSTM is for
both, and learns from the critics alone: the actor takes h as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.learn.agent import Batch
from midstride.learn.agent_settings import AgentSettings
from midstride.learn.baselines.rtac import OwnTargetSettings
from midstride.learn.sac import SAC, Network, frozen_critics
from midstride.learn.spaces import check_continuous
from midstride.learn.targets import bellman_target
from midstride.settings import Range


@dataclass(frozen=True)
class RSACSettings(OwnTargetSettings):
    """Of recurrent SAC."""

    agent: Literal["rsac"] = "rsac"
    """rsac: SAC with a recurrent network (an LSTM), which remembers what it did"""
    lstm_size: Annotated[int, Range(1)] = 64
    """size of the recurrent state"""
    segment: Annotated[int, Range(1)] = 10
    """steps of a training segment that are learned from"""
    burn_in: Annotated[int, Range(0)] = 5
    """steps before them that only warm up the recurrent state"""


class Remembering(Network):
    """SAC on what is seen and remembered."""

    cell: eqx.nn.LSTMCell

    def __init__(self, settings: Any, columns: int, actions: int, key: Array) -> None:
        super().__init__(settings, columns + settings.lstm_size, actions, key)
        cell_key = jax.random.fold_in(key, 1)
        self.cell = eqx.nn.LSTMCell(columns, settings.lstm_size, key=cell_key)


class RSAC(SAC):
    """Recurrent soft actor-critic from segments."""

    Settings: ClassVar[type[AgentSettings]] = RSACSettings
    drawn = ("transitions", "h", "c")
    lstm_size = property(lambda self: self.settings.lstm_size)

    def make_network(self, settings: Any, envs: LearnableEnvs, key: Array) -> Remembering:
        return Remembering(settings, envs.single_observation_space.shape[0], self.size, key)

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        check_continuous(settings.agent, envs)

    def act(self, observation: Any, steps: int) -> tuple[NDArray[Any], Batch]:
        h, c = (part.copy() for part in self.policy.state(len(observation)))
        # Also before learning starts: it must have seen what it will remember.
        action = self.policy.sample(observation, self.rng)
        if steps < self.settings.learning_starts:
            action = self.rng.uniform(-1, 1, action.shape).astype(action.dtype)
        return self.policy.to_environment(action), {"action": action, "h": h, "c": c}

    def ready(self, steps: int) -> bool:
        held = min(self.replay.added, self.replay.length)
        span = self.settings.burn_in + self.settings.segment
        return steps >= self.settings.learning_starts and held >= span

    def sample(self, updates: int) -> Batch:
        """Segments (updates, segments, steps, ...), with the state at the start of each."""
        s = self.settings
        count = max(1, s.batch_size // s.segment)
        found = self.replay.segments(self.rng, (updates, count), s.burn_in + s.segment)
        return {**found, "normal": self.normal_now()}

    def loss(self, online: Any, target: Any, steps: Any, keys: Any) -> tuple[Any, Any]:
        frozen, burn_in = jax.lax.stop_gradient, self.settings.burn_in
        temperature = frozen(jnp.exp(online.log_temperature))
        z, z_next = self._remembered(online, steps)
        _, z_target = self._remembered(target, steps)
        flat = {n: _flat(steps[n][:, burn_in:]) for n in self.row.places}

        def bootstrap(_: Any) -> Any:
            action, density = online.sample(frozen(z_next), keys[0])
            return target.values(z_target, action).min(axis=0) - temperature * density

        y = frozen(bellman_target(self.settings, flat, bootstrap))
        q = online.values(z, flat["action"])
        critic_loss = 0.5 * ((q - y) ** 2).mean(axis=1).sum()
        action, density = online.sample(frozen(z), keys[1])
        value = frozen_critics(online).values(frozen(z), action).min(axis=0)
        actor_loss = (temperature * density - value).mean()
        return self.total_loss(online, q, critic_loss, actor_loss, density)

    def _remembered(self, network: Any, steps: Any) -> tuple[Any, Any]:
        """What is seen and remembered in each step that is learned from, and in the next one."""
        burn_in, over = self.settings.burn_in, steps["terminated"] | steps["truncated"]
        cell = jax.vmap(network.cell)

        def step(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            seen, done = now
            after = cell(seen, state)
            # A new episode starts from nothing.
            return jax.tree.map(lambda part: jnp.where(done[:, None], 0.0, part), after), after

        # (time, segments, ...)
        seen, done = (jnp.swapaxes(p, 0, 1) for p in (steps["observation_capture"], over))
        start = (steps["h"], steps["c"])
        state, _ = jax.lax.scan(step, start, (seen[:burn_in], done[:burn_in]))
        state = jax.lax.stop_gradient(state)
        _, states = jax.lax.scan(step, state, (seen[burn_in:], done[burn_in:]))
        h, c = (_flat(jnp.swapaxes(part, 0, 1)) for part in states)
        here, there = (
            _flat(steps[name][:, burn_in:]) for name in ("observation_capture", "observation_next")
        )
        h_next, _ = cell(there, (h, c))
        return jnp.concatenate([here, h], axis=1), jnp.concatenate([there, h_next], axis=1)


def _flat(steps: Array) -> Array:
    """(segments, time, ...) as (segments x time, ...)."""
    return steps.reshape(-1, *steps.shape[2:])
