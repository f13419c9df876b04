"""DQN (Mnih et al., 2015) on the augmented state: the paper's Algorithm 1, discrete actions.

Continuous actions are made discrete by the agent: all combinations of a few levels of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.envs.vector import Step
from midstride.learn.agent import Agent, Batch, Lap, part_of
from midstride.learn.agent_settings import (
    AgentSettings,
    Count,
    HindsightSettings,
    ReplaySettings,
    RunSettings,
    Share,
    check_sizes,
)
from midstride.learn.lived import check_hindsight
from midstride.learn.priorities import Prioritised
from midstride.learn.relabel import Hindsight, HindsightReplay
from midstride.learn.replay import DrawnReplay, Row
from midstride.learn.spaces import MAX_ACTIONS, action_table
from midstride.learn.targets import bellman_target, best_next
from midstride.policies import QPolicy
from midstride.settings import Range


@dataclass(frozen=True)
class QSettings(ReplaySettings):
    """What DQN and recurrent DQN share."""

    levels: Annotated[int, Range(2, MAX_ACTIONS)] = 3
    """levels of each action dimension, in environments whose actions are continuous"""
    hidden: tuple[int, ...] = (128, 128)
    """sizes of the hidden layers"""
    dueling: bool = False
    """separate heads for the value of a state and the advantage of an action"""
    double: bool = True
    """choose the next action by the online network, value it by the target network"""
    learning_starts: Count = 2_000
    """environment steps before the first update"""
    target_every: Annotated[int, Range(0)] = 0
    """if above 0, copy the online network every so many updates instead of averaging"""
    reward_scale: float | None = None
    """factor on rewards in learning (default: the largest reward of a period becomes 1)"""
    epsilon_start: Share = 1.0
    """share of random actions at the start"""
    epsilon_end: Share = 0.05
    """share of random actions in the end"""
    epsilon_fraction: Share = 0.3
    """part of training over which it falls"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self)

    @property
    def begins_after(self) -> int:
        return self.learning_starts


@dataclass(frozen=True)
class DQNSettings(QSettings, HindsightSettings):
    """Of DQN."""

    agent: Literal["dqn"] = "dqn"
    """dqn: Q-learning with a feed-forward network"""
    n_step: Annotated[int, Range(1)] = 1
    """rewards summed before the bootstrap (full_period only)"""
    prioritised: bool = False
    """sample transitions in proportion to their last error"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target == "concurrent" and self.n_step != 1:
            raise ValueError("the concurrent target has its bootstrap at the switch: use n_step 1")
        if self.hindsight_from is not None and (self.n_step != 1 or self.prioritised):
            raise ValueError(
                "hindsight draws single transitions evenly: use n_step 1, unprioritised"
            )


class Head(eqx.Module):
    """Hidden layers with ReLU, then a value per action (dueling: value + centred advantage).

    Inputs are unbatched, as Equinox has it: `jax.vmap` it. `QPolicy` computes the same in NumPy.
    """

    layers: list[eqx.nn.Linear]
    advantage: eqx.nn.Linear
    value: eqx.nn.Linear | None

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], actions: int, dueling: bool, key: Array
    ) -> None:
        keys = jax.random.split(key, len(hidden) + 2)
        sizes = (inputs, *hidden)
        self.layers = [
            eqx.nn.Linear(sizes[i], sizes[i + 1], key=keys[i]) for i in range(len(hidden))
        ]
        self.advantage = eqx.nn.Linear(sizes[-1], actions, key=keys[-2])
        self.value = eqx.nn.Linear(sizes[-1], 1, key=keys[-1]) if dueling else None

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        q = self.advantage(x)
        return q if self.value is None else self.value(x) + q - q.mean()


class FeedForward(eqx.Module):
    """Q(observation, .)."""

    head: Head

    def __call__(self, observation: Array) -> Array:
        return self.head(observation)


class DQN(Agent):
    """Feed-forward Q-learning from single transitions."""

    Settings: ClassVar[type[AgentSettings]] = DQNSettings
    span = property(lambda self: self.settings.n_step)  # steps in a row that are learned from
    lstm_size = 0

    def __init__(
        self, settings: Any, run: RunSettings, envs: LearnableEnvs, rng: np.random.Generator
    ) -> None:
        self.rng, self._total_steps = rng, run.steps
        (columns,) = envs.single_observation_space.shape
        self.table = action_table(envs.single_action_space, settings.levels)
        choices = np.arange(envs.single_action_space.n) if self.table is None else self.table
        self.actions = len(choices)
        super().__init__(settings, run, self.make_network(settings, columns, run.seed))
        self.row = Row(columns, settings.target == "concurrent")
        self.hindsight = Hindsight.of(settings, envs, self.row)
        scale = settings.reward_scale
        self._reward_scale = envs.hints.reward_scale if scale is None else scale
        self.replay = self.new_replay(settings.replay_size)
        self.policy = self.policy_of(self.state["online"])
        self._update = jax.jit(self._updates, donate_argnums=0)
        prioritised = self.lstm_size == 0 and settings.prioritised
        self._priorities = Prioritised(self.replay, settings.n_step) if prioritised else None

    def make_network(self, settings: Any, columns: int, seed: int) -> eqx.Module:
        key = jax.random.key(seed)
        return FeedForward(Head(columns, settings.hidden, self.actions, settings.dueling, key))

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        super().check(settings, envs)
        space = envs.single_observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(
                f"{settings.agent} observes a flat Box, not {space}: images are for qtopt"
            )
        action_table(envs.single_action_space, settings.levels)
        check_hindsight(settings, envs)

    def policy_of(self, weights: Any) -> QPolicy:
        actions = None if self.table is None else self.table.tolist()
        return QPolicy(self.named(weights), {"kind": "q", "actions": actions})

    # --- Acting and remembering

    def epsilon(self, steps: int) -> float:
        s = self.settings
        over = max(1.0, s.epsilon_fraction * self._total_steps)
        fallen = s.epsilon_start - (s.epsilon_start - s.epsilon_end) * steps / over
        return max(s.epsilon_end, fallen)

    def act(self, observation: Any, steps: int) -> tuple[NDArray[Any], Batch]:
        n, notes = len(observation), {}
        if self.lstm_size:
            notes = {
                name: part.copy() for name, part in zip("hc", self.policy.state(n), strict=True)
            }
        greedy = self.policy.choose(observation)
        explore = self.rng.random(n) < self.epsilon(steps)
        chosen = np.where(explore, self.rng.integers(self.actions, size=n), greedy)
        return (chosen if self.table is None else self.table[chosen]), {**notes, "action": chosen}

    def remember(self, step: Step) -> None:
        self.replay.add(step)

    def new_replay(self, capacity: int) -> DrawnReplay:
        """For so many transitions of `num_envs` environments."""
        n, scale, s = self._run.num_envs, self._reward_scale, self.settings
        if self.hindsight is not None:
            return HindsightReplay(capacity, n, self.hindsight, scale)
        n_step = 1 if self.lstm_size else s.n_step
        return DrawnReplay(capacity, n, self.row, self.lstm_size, scale, n_step, s.gamma_per_s)

    def ready(self, steps: int) -> bool:
        held = min(self.replay.added, self.replay.length)
        span = self.span if self.hindsight is None else self.hindsight.span
        return steps >= self.settings.learning_starts and held >= span

    # --- Learning

    def sample(self, updates: int) -> Batch:
        """Batches (updates, batch_size, ...)."""
        s, replay = self.settings, self.replay
        shape = (updates, s.batch_size)
        if self._priorities is not None:
            rows, envs, weights = self._priorities.sample(self.rng, shape)
            found = replay.gather(rows, envs, s.n_step, s.gamma_per_s)
            return {"transitions": found, "weights": weights}
        found = replay.sample(self.rng, updates * s.batch_size)["transitions"]
        return {"transitions": found.reshape(*shape, -1)}

    def dispatch(self, batches: Batch, lap: Lap | None = None) -> None:
        self.state, measured = self._update(self.state, batches)
        self.finish_piece(measured, "fitting", lap)
        self._under_way.append(measured)

    def _updates(self, state: Any, batches: Any) -> tuple[Any, Any]:
        state, measured = jax.lax.scan(self._one_update, state, batches)
        # The next dispatch reuses the buffers of the state; the policy needs its own.
        return state, {**measured, "policy": jnp.copy(state["online"])}

    def _one_update(self, state: Any, batch: Any) -> tuple[Any, Any]:
        gradient, measured = self.gradient(state, batch)
        return self.stepped(state, gradient), measured

    def gradient(self, state: Any, batch: Any) -> tuple[Any, Any]:
        def loss(online: Any) -> tuple[Any, Any]:
            return self.loss(self.network(online), self.network(state["target"]), batch)

        (value, measured), gradient = jax.value_and_grad(loss, has_aux=True)(state["online"])
        return gradient, {"loss": value, **measured}

    def stepped(self, state: Any, gradient: Any) -> Any:
        """A step down the gradient, and the target network after it."""
        state = self.step_optimiser(state, gradient)
        if self.settings.target_every:
            copy = state["updates"] % self.settings.target_every == 0
            state["target"] = jnp.where(copy, state["online"], state["target"])
        else:
            tau = self.settings.target_tau
            state["target"] = optax.incremental_update(state["online"], state["target"], tau)
        return state

    def loss(self, online: Any, target: Any, batch: Any) -> tuple[Any, Any]:
        steps = self.row.unpack(batch["transitions"])

        def bootstrap(observation: Any) -> Any:
            by_target = jax.vmap(target)(observation)
            by_online = jax.vmap(online)(observation) if self.settings.double else by_target
            return best_next(by_online, by_target)

        values = jax.vmap(online)(steps["observation_capture"])
        q = jnp.take_along_axis(values, steps["action"][:, None], axis=1)[:, 0]
        y = bellman_target(self.settings, steps, bootstrap)
        return td_loss(q, y, batch.get("weights", 1.0))

    def arrays(self) -> Batch:
        held = {} if self._priorities is None else self._priorities.arrays()
        return super().arrays() | {f"priorities.{name}": array for name, array in held.items()}

    def restore(self, arrays: Batch) -> None:
        super().restore(arrays)
        if self._priorities is not None:
            self._priorities.restore(part_of(arrays, "priorities"))

    def finished(self, outcome: dict[str, Any]) -> dict[str, NDArray[Any]]:
        measured = super().finished(outcome)
        if self._priorities is not None:
            self._priorities.learn(measured["error"])
        return measured


def td_loss(q: Any, target: Any, weights: Any = 1.0) -> tuple[Any, dict[str, Any]]:
    """Huber loss of chosen values against their targets, and what is worth watching."""
    error = q - jax.lax.stop_gradient(target)
    loss = (weights * optax.huber_loss(error)).mean()
    return loss, {"q": q.mean(), "target": target.mean(), "error": error}
