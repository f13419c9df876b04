"""Predict, then act (Firoiu et al., 2018; Amiranashvili et al., 2019): a model looks ahead.

    L_f = |f(x_i) - (s~_i - s_i - mean) / sigma|^2,   foreseen(x) = s + mean + sigma f(x)
    the actor sees foreseen(x_i), frozen, and nothing else; critics as of BPQL, at the switch

x holds what is observed at capture and what is in flight; s~ is the state at the switch; mean and
sigma are those of how far states move until then. The actor is one for a world without latency,
and whatever the model cannot foresee (chance) it does not know of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.learn.agent import Batch
from midstride.learn.agent_settings import AgentSettings, RunSettings
from midstride.learn.baselines.in_flight import draw_windows
from midstride.learn.baselines.rtac import OwnTargetSettings
from midstride.learn.baselines.switches import (
    Pairing,
    TellsLatency,
    check_pairs,
    losses_at_switch,
)
from midstride.learn.normal import Normaliser
from midstride.learn.sac import SAC, Network, Normal, linear_layers
from midstride.learn.spaces import check_continuous
from midstride.policies.actor import ActorPolicy


@dataclass(frozen=True)
class PredictSettings(OwnTargetSettings):
    """Of predict, then act."""

    agent: Literal["predict"] = "predict"
    """predict: a model foresees the state at the switch, and the actor sees that (Firoiu 2018)"""

    @property
    def observes_switch(self) -> bool:
        return True


class Predictor(eqx.Module):
    """How far the state moves until the switch, normalised; unbatched."""

    layers: list[eqx.nn.Linear]
    out: eqx.nn.Linear

    def __init__(self, columns: int, hidden: tuple[int, ...], base: int, key: Array) -> None:
        keys = jax.random.split(key, len(hidden) + 1)
        self.layers = linear_layers(columns, hidden, keys[1:])
        self.out = eqx.nn.Linear((columns, *hidden)[-1], base, key=keys[0])

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return self.out(x)


class Foreseeing(Network):
    """SAC of states without latency, and the model that tells them."""

    predictor: Predictor

    def __init__(
        self, settings: Any, columns: int, base: int, seen: tuple[int, int], key: Array
    ) -> None:
        super().__init__(settings, base, seen[1], key, seen)
        self.predictor = Predictor(columns, settings.hidden, base, jax.random.fold_in(key, 1))


class Predict(SAC):
    """A model of the time until the switch, and SAC on what it foresees."""

    Settings: ClassVar[type[AgentSettings]] = PredictSettings

    def __init__(
        self, settings: Any, run: RunSettings, envs: LearnableEnvs, rng: np.random.Generator
    ) -> None:
        self.moves = Normaliser(envs.layout.slices["base"].stop)
        super().__init__(settings, run, envs, rng)
        self.pairing = Pairing(envs, self.row, self.base)

    def make_network(self, settings: Any, envs: LearnableEnvs, key: Array) -> Foreseeing:
        (columns,) = envs.single_observation_space.shape
        seen = (self.base + TellsLatency(envs).columns, self.size)
        return Foreseeing(settings, columns, self.base, seen, key)

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        check_continuous(settings.agent, envs)
        check_pairs(settings.agent, envs)

    def policy_of(self, weights: Any) -> ActorPolicy:
        policy = super().policy_of(weights)
        mean, scale = self.moves.mean_and_scale()
        policy.weights |= {"normal.move_mean": mean, "normal.move_scale": scale}
        return policy

    def ready(self, steps: int) -> bool:
        held = min(self.replay.added, self.replay.length)
        return steps >= self.settings.learning_starts and held >= self.pairing.span

    def draw(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return draw_windows(self.replay, self.rng, shape, self.pairing.span, self.pairing.valid)

    def sample(self, updates: int) -> Batch:
        """Batches, and what is known of how far states move until the switch."""
        found = super().sample(updates)
        steps = self.row.unpack(found["transitions"][0])
        self.moves.add(self.pairing.state(steps) - steps["observation_capture"][:, 0, : self.base])
        return {**found, "moves": Normal(*self.moves.mean_and_scale())}  # type: ignore[dict-item]

    def loss(self, online: Any, target: Any, steps: Any, keys: Any) -> tuple[Any, Any]:
        moves, scale = steps["moves"], steps["normal"].scale[: self.base]

        def foreseen(x: Any) -> tuple[Any, Any]:
            """The model's output, and the state that it stands for."""
            out = jax.vmap(online.predictor)(x)
            return out, x[:, : self.base] + (moves.mean + out / moves.scale) * scale

        met = self.pairing(steps)
        out, state = foreseen(met.x)
        # In the environment's units.
        moved = (met.state[:, : self.base] - met.x[:, : self.base]) / scale
        wrong = out - (moved - moves.mean) * moves.scale
        frozen = jax.lax.stop_gradient
        met = met._replace(x=frozen(state), x_next=frozen(foreseen(met.x_next)[1]))
        total, measured = losses_at_switch(self, online, target, met, keys)
        model_loss = (wrong**2).mean()
        return total + model_loss, {**measured, "auxiliary": model_loss}

    def arrays(self) -> Batch:
        moves = {f"moves.{name}": array for name, array in self.moves.arrays().items()}
        return super().arrays() | moves

    def restore(self, arrays: Batch) -> None:
        self.moves.restore({"normal": arrays["moves.normal"]})
        super().restore(arrays)
