"""PPO (Schulman et al., 2017) on the augmented state: continuous actions, steps learned from once.

    d_t = r_t + gamma^H V(x_{t+1}) - V(x_t),        A_t = d_t + gamma^H lambda A_{t+1}
    L_pi = -min(rho A, clip(rho, 1 - e, 1 + e) A),  rho = pi(a|x) / pi_old(a|x)
    L_V = (V(x) - (A + V_old(x)))^2

x is what is observed, knowledge included. A rollout is taken with one policy, learned from for some
epochs in one compiled scan, and forgotten. The physics waits for that: what is learned from must
come from the policy that it changes. For as long as a rollout lasts, nothing else moves either:
observations are normalised by the mean and deviation of all rollouts before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.envs.vector import Step
from midstride.learn.agent import Agent, Batch, Lap
from midstride.learn.agent_settings import AgentSettings, Count, RunSettings, Share
from midstride.learn.normal import Normaliser
from midstride.learn.replay import Replay, Row
from midstride.learn.spaces import check_continuous
from midstride.learn.targets import generalised_advantage
from midstride.policies.actor import CLIP, LOG_DEVIATION, ActorPolicy
from midstride.settings import Range


@dataclass(frozen=True)
class PPOSettings(AgentSettings):
    """Of PPO."""

    agent: Literal["ppo"] = "ppo"
    """ppo: continuous actions, an actor that learns from its own latest steps alone"""
    hidden: tuple[int, ...] = (64, 64)
    """sizes of the hidden layers, of the actor and of the critic"""
    rollout: Count = 2_048
    """environment steps, of all environments together, that are learned from at once"""
    epochs: Annotated[int, Range(1, 1000)] = 10
    """times that a rollout is learned from before it is forgotten"""
    batch_size: Annotated[int, Range(1, 10**6)] = 64
    """transitions that each update learns from; what a rollout has beyond a whole number of batches
    is left out, other steps in each epoch"""
    learning_rate: Annotated[float, Range(1e-12, 1e3)] = 3e-4
    """step size of Adam at the start"""
    learning_rate_end: Share = 1.0
    """part of the learning rate that is left in the end; it falls linearly"""
    max_grad_norm: Annotated[float, Range(0)] = 0.5
    """gradients are clipped to this norm; 0: not at all"""
    trace: Share = 0.95
    """lambda of the advantage, per step: 0 trusts the critic after one step, 1 not at all"""
    clip: Annotated[float, Range(1e-6, 1e6)] = 0.2
    """how far the probability of an action may move, as a share, before it teaches no more"""
    value_weight: Annotated[float, Range(0)] = 0.5
    """weight of the critic's loss"""
    entropy_weight: Annotated[float, Range(0)] = 0.0
    """what entropy is worth"""
    log_deviation: Annotated[float, Range(*LOG_DEVIATION)] = 0.0
    """logarithm of the deviation of actions at the start, in halves of their range"""
    normalise: bool = True
    """normalise observations by the mean and deviation of those seen so far"""
    normalise_reward: bool = True
    """divide rewards, in learning, by the deviation of their discounted sums so far"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden layers need at least 1 unit, got {self.hidden}")
        if self.rollout < self.batch_size:
            raise ValueError(f"rollout must be at least batch_size ({self.batch_size})")

    @property
    def remembers(self) -> tuple[str, int]:
        return "rollout", self.rollout

    def updates_in(self, steps: int) -> int:
        return steps // self.rollout * self.epochs * (self.rollout // self.batch_size)


class Everywhere(eqx.Module):
    """Numbers that do not depend on what is observed."""

    bias: Array


class Actor(eqx.Module):
    """Mean of an action, and the log deviation that it has everywhere; batches of x."""

    layers: list[eqx.nn.Linear]
    mean: eqx.nn.Linear
    log_deviation: Everywhere

    def __call__(self, x: Array) -> tuple[Array, Array]:
        mean = jax.vmap(self.mean)(through(self.layers, x))
        return mean, jnp.clip(self.log_deviation.bias, *LOG_DEVIATION)


class Critic(eqx.Module):
    """V(x); batches of x."""

    layers: list[eqx.nn.Linear]
    out: eqx.nn.Linear

    def __call__(self, x: Array) -> Array:
        return jax.vmap(self.out)(through(self.layers, x))[..., 0]


class Network(eqx.Module):
    """Everything that PPO learns."""

    actor: Actor
    critic: Critic

    def __init__(self, settings: PPOSettings, columns: int, actions: int, key: Array) -> None:
        keys = iter(jax.random.split(key, 2 * len(settings.hidden) + 2))
        sizes = (columns, *settings.hidden)

        def layers() -> list[eqx.nn.Linear]:
            pairs = zip(sizes, settings.hidden, strict=False)
            return [orthogonal(a, b, 2**0.5, next(keys)) for a, b in pairs]

        deviation = Everywhere(jnp.full(actions, settings.log_deviation))
        mean = orthogonal(sizes[-1], actions, 0.01, next(keys))
        self.actor = Actor(layers(), mean, deviation)
        self.critic = Critic(layers(), orthogonal(sizes[-1], 1, 1.0, next(keys)))

    def density(self, x: Array, action: Array) -> tuple[Array, Array]:
        """Logarithm of the density of actions (n, size) in x (n, columns), and the entropy."""
        mean, log_deviation = self.actor(x)
        away = (action - mean) * jnp.exp(-log_deviation)
        spread = log_deviation + 0.5 * jnp.log(2 * jnp.pi)
        return (-0.5 * away**2 - spread).sum(axis=-1), (spread + 0.5).sum()


class PPO(Agent):
    """Proximal policy optimisation from rollouts."""

    Settings: ClassVar[type[AgentSettings]] = PPOSettings
    waits = True  # the next rollout is of the policy that has learned
    run_defaults = RunSettings(steps=200_000, num_envs=8, evaluation_episodes=8)

    def __init__(
        self, settings: Any, run: RunSettings, envs: LearnableEnvs, rng: np.random.Generator
    ) -> None:
        self.rng = rng
        (columns,) = envs.single_observation_space.shape
        space = envs.single_action_space
        size = int(np.prod(space.shape))
        self._description = {
            "kind": "actor",
            "low": space.low.ravel().tolist(),
            "high": space.high.ravel().tolist(),
            "squash": "clip",
            "activation": "tanh",
        }
        super().__init__(settings, run, Network(settings, columns, size, jax.random.key(run.seed)))
        del self.state["target"]  # there is none
        self.row = Row(columns, switch=False, actions=size)
        self.replay = Replay(settings.rollout, run.num_envs, self.row)
        self.normal = Normaliser(columns)
        self.returns = Normaliser(1)
        self._sums = np.zeros(run.num_envs)  # discounted rewards so far of the episodes under way
        self.policy = self.policy_of(self.state["online"])
        self._update = jax.jit(self._updates, donate_argnums=0)

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        super().check(settings, envs)
        check_continuous("ppo", envs)
        if settings.rollout < envs.num_envs:
            raise ValueError(
                f"rollout {settings.rollout} is less than a step of each of {envs.num_envs} "
                "environments: make it larger, or num_envs smaller"
            )

    def policy_of(self, weights: Any) -> ActorPolicy:
        return ActorPolicy.of(self.named(weights), *self.normal.mean_and_scale(), self._description)

    def averaged_policy(self) -> ActorPolicy:
        """The newest, by its mean: there is no other."""
        return self.policy_of(self.state["online"])

    # --- Acting and remembering

    def act(self, observation: Any, steps: int) -> tuple[NDArray[Any], Batch]:
        action = self.policy.sample(observation, self.rng)
        return self.policy.to_environment(action), {"action": action}

    def remember(self, step: Step) -> None:
        self.replay.add(step)

    def ready(self, steps: int) -> bool:
        """Whether the rollout is whole."""
        return self.replay.added % self.replay.length == 0

    def calls_for(self, steps: int) -> float:
        return 1.0

    # --- Learning

    def sample(self, updates: int) -> Batch:
        """The rollout (time, environments, ...), and the rows (updates, batch) of each update."""
        s, transitions = self.settings, self.replay.data["transitions"]
        count, acting = transitions.shape[0] * transitions.shape[1], self.policy.weights
        size = min(s.batch_size, count)
        orders = [self.rng.permutation(count)[: count // size * size] for _ in range(s.epochs)]
        found = {
            "transitions": transitions.copy(),
            "rows": np.concatenate(orders).reshape(-1, size),
            "mean": acting["normal.mean"],
            "scale": acting["normal.scale"],
            "reward_scale": np.float32(self._reward_scale()),
        }
        if s.normalise:
            seen = self.row.unpack(transitions)["observation_capture"]
            self.normal.add(seen.reshape(count, -1))
        return found

    def _reward_scale(self) -> float:
        """One over the deviation of discounted sums of rewards, this rollout's among them."""
        if not self.settings.normalise_reward:
            return 1.0
        steps, found = self.row.unpack(self.replay.data["transitions"]), []
        reward = steps["reward_before_switch"] + steps["reward_after_switch"]
        discount = self.settings.gamma_per_s ** steps["period_s"]
        going_on = ~(steps["terminated"] | steps["truncated"])
        for now in zip(reward, discount, going_on, strict=True):
            self._sums = now[0] + now[1] * self._sums
            found.append(self._sums)
            self._sums = self._sums * now[2]
        self.returns.add(np.concatenate(found)[:, None])
        return float(self.returns.mean_and_scale()[1][0])

    def dispatch(self, batches: Batch, lap: Lap | None = None) -> None:
        self.state, measured = self._update(self.state, batches)
        self.finish_piece(measured, "fitting", lap)
        self._under_way.append(measured)

    def _updates(self, state: Any, rollout: Any) -> tuple[Any, Any]:
        """All epochs of a rollout."""
        steps = self.judged(self.network(state["online"]), rollout)

        def one(state: Any, rows: Any) -> tuple[Any, Any]:
            batch = {name: array[rows] for name, array in steps.items()}
            graded = jax.value_and_grad(self.loss, has_aux=True)
            (value, measured), gradient = graded(state["online"], batch)
            return self.step_optimiser(state, gradient), {"loss": value, **measured}

        state, measured = jax.lax.scan(one, state, rollout["rows"])
        # The next dispatch reuses the buffers of the state; the policy needs its own.
        return state, {**measured, "policy": jnp.copy(state["online"])}

    def judged(self, network: Any, rollout: Any) -> dict[str, Array]:
        """What the updates of a rollout learn from, (time x environments, ...) each."""
        steps = self.row.unpack(rollout["transitions"])
        x, x_next = (
            jnp.clip((steps[name] - rollout["mean"]) * rollout["scale"], -CLIP, CLIP)
            for name in ("observation_capture", "observation_next")
        )
        reward = (steps["reward_before_switch"] + steps["reward_after_switch"]) * rollout[
            "reward_scale"
        ]
        value, value_next = (jax.vmap(network.critic)(seen) for seen in (x, x_next))
        advantage = generalised_advantage(
            reward,
            steps["terminated"],
            steps["truncated"],
            value,
            value_next,
            self.settings.gamma_per_s ** steps["period_s"],
            self.settings.trace,
        )
        density, _ = jax.vmap(network.density)(x, steps["action"])
        found = {
            "x": x, "action": steps["action"], "density": density, "advantage": advantage,
            "value": advantage + value,
        }  # fmt: skip
        return {name: array.reshape(-1, *array.shape[2:]) for name, array in found.items()}

    def loss(self, online: Any, batch: dict[str, Array]) -> tuple[Any, Any]:
        network, s = self.network(online), self.settings
        density, entropy = network.density(batch["x"], batch["action"])
        change = density - batch["density"]
        ratio, advantage = jnp.exp(change), batch["advantage"]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        bounded = jnp.clip(ratio, 1 - s.clip, 1 + s.clip)
        actor_loss = -jnp.minimum(ratio * advantage, bounded * advantage).mean()
        value_loss = ((network.critic(batch["x"]) - batch["value"]) ** 2).mean()
        total = actor_loss + s.value_weight * value_loss - s.entropy_weight * entropy
        return total, {
            "value_loss": value_loss,
            "entropy": entropy,
            "divergence": (ratio - 1 - change).mean(),  # of the old policy from the new (Schulman)
            "clipped": (jnp.abs(ratio - 1) > s.clip).mean(),
        }

    # --- Checkpoints

    def arrays(self) -> Batch:
        returns = self.returns.arrays()["normal"]
        sums = {"returns": returns, "sums": self._sums}
        return super().arrays() | self.normal.arrays() | sums

    def restore(self, arrays: Batch) -> None:
        self.normal.restore(arrays)
        self.returns.restore({"normal": arrays["returns"]})
        super().restore(arrays)
        # The episodes begin anew: `Replay.cut` says so inside of a rollout, but not at its start.
        self._sums = arrays["sums"] * (self.replay.added % self.replay.length > 0)


def orthogonal(inputs: int, outputs: int, gain: float, key: Array) -> eqx.nn.Linear:
    """A layer whose rows, or columns, are orthogonal, of length `gain`; no bias at first."""
    layer = eqx.nn.Linear(inputs, outputs, key=key)
    weight = jax.nn.initializers.orthogonal(gain)(key, (outputs, inputs))
    return eqx.tree_at(lambda one: (one.weight, one.bias), layer, (weight, jnp.zeros(outputs)))


def through(layers: list[eqx.nn.Linear], x: Array) -> Array:
    """Hidden layers with tanh, of a batch."""
    for layer in layers:
        x = jnp.tanh(jax.vmap(layer)(x))
    return x
