"""SAC (Haarnoja et al., 2018) on the augmented state: continuous actions, entropy beside reward.

    y = r + gamma^H (min_j Qbar_j(x', a') - alpha log pi(a'|x')),   a' ~ pi(x')
    L_Q = sum_j (Q_j(x, a) - y)^2 / 2
    L_pi = alpha log pi(a|x) - min_j Q_j(x, a),                      a ~ pi(x), Q frozen
    L_alpha = -log alpha (log pi(a|x) + wanted entropy),             the rest frozen

x is what is observed, knowledge included. The three losses meet in one gradient: each is frozen in
what the others learn, and Adam treats every number by itself. Critics have layer norm, which keeps
values from running away, and observations are normalised by what has been seen so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.envs.vector import Step
from midstride.learn.agent import Agent, Batch, Lap
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
from midstride.learn.normal import Normaliser
from midstride.learn.relabel import Hindsight, HindsightReplay
from midstride.learn.replay import DrawnReplay, Row
from midstride.learn.shard import WHOLE, Shard
from midstride.learn.spaces import check_continuous
from midstride.learn.targets import bellman_target
from midstride.policies.actor import CLIP, LOG_DEVIATION, ActorPolicy
from midstride.settings import Range


@dataclass(frozen=True)
class SoftSettings(ReplaySettings):
    """What SAC and its kin (`baselines/`) share."""

    hidden: tuple[int, ...] = (256, 256)
    """sizes of the hidden layers, of the actor and of each critic"""
    layer_norm: bool = True
    """normalise the layers of the critics: values do not run away"""
    normalise: bool = True
    """normalise observations by the mean and deviation of those seen so far"""
    learning_rate: Annotated[float, Range(1e-12, 1e3)] = 3e-4
    """step size of Adam at the start"""
    learning_rate_end: Share = 1.0
    """part of the learning rate that is left in the end; it falls linearly"""
    update_every: Annotated[int, Range(1, 10**6)] = 1
    """environment steps per update; fewer learn more from the same experience, and take longer"""
    replay_size: Count = 1_000_000
    """transitions that are remembered"""
    max_grad_norm: Annotated[float, Range(0)] = 0.0
    """gradients are clipped to this norm; 0: not at all"""
    learning_starts: Count = 1_000
    """environment steps with random actions before the first update"""
    reward_scale: float = 1.0
    """factor on rewards in learning: the larger, the less entropy counts"""
    entropy: float | None = None
    """wanted entropy of the policy (default: minus the number of action dimensions)"""
    temperature: Annotated[float, Range(1e-9)] = 1.0
    """what entropy is worth at the start; it is learned from there on"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self)

    @property
    def begins_after(self) -> int:
        return self.learning_starts


@dataclass(frozen=True)
class SACSettings(SoftSettings, HindsightSettings):
    """Of SAC."""

    agent: Literal["sac"] = "sac"
    """sac: continuous actions, an actor that is paid for entropy too"""


class Normal(NamedTuple):
    """What observations are normalised by: (columns,) each."""

    mean: Any
    scale: Any

    def __call__(self, x: Any, columns: slice = slice(None)) -> Array:
        """Observations (..., columns), or some columns of them."""
        return jnp.clip((x - self.mean[columns]) * self.scale[columns], -CLIP, CLIP)


class Actor(eqx.Module):
    """Mean and log deviation of an action before the tanh; unbatched, as Equinox has it."""

    layers: list[eqx.nn.Linear]
    mean: eqx.nn.Linear
    log_deviation: eqx.nn.Linear

    def __init__(self, columns: int, hidden: tuple[int, ...], actions: int, key: Array) -> None:
        keys = jax.random.split(key, len(hidden) + 2)
        self.layers = linear_layers(columns, hidden, keys[2:])
        last = (columns, *hidden)[-1]
        self.mean = eqx.nn.Linear(last, actions, key=keys[0])
        self.log_deviation = eqx.nn.Linear(last, actions, key=keys[1])

    def __call__(self, x: Array) -> tuple[Array, Array]:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return self.mean(x), jnp.clip(self.log_deviation(x), *LOG_DEVIATION)


class Critic(eqx.Module):
    """Q(x, action); unbatched."""

    layers: list[eqx.nn.Linear]
    norms: list[eqx.nn.LayerNorm]
    out: eqx.nn.Linear

    def __init__(
        self, columns: int, hidden: tuple[int, ...], actions: int, layer_norm: bool, key: Array
    ) -> None:
        keys = jax.random.split(key, len(hidden) + 1)
        self.layers = linear_layers(columns + actions, hidden, keys[1:])
        self.norms = [eqx.nn.LayerNorm(size) for size in hidden] if layer_norm else []
        self.out = eqx.nn.Linear((columns + actions, *hidden)[-1], 1, key=keys[0])

    def __call__(self, x: Array, action: Array) -> Array:
        x = jnp.concatenate([x, action])
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x = jax.nn.relu(self.norms[i](x) if self.norms else x)
        return self.out(x)[0]


class Network(eqx.Module):
    """Everything that SAC learns.

    seen: columns of a state and of an action that the critics see (default: what the actor sees,
        and what it does)
    """

    actor: Actor
    critics: list[Critic]
    log_temperature: Array

    def __init__(
        self,
        settings: SoftSettings,
        columns: int,
        actions: int,
        key: Array,
        seen: tuple[int, int] | None = None,
    ) -> None:
        keys = jax.random.split(key, 3)
        hidden, norm = settings.hidden, settings.layer_norm
        state, action = seen or (columns, actions)
        self.actor = Actor(columns, hidden, actions, keys[0])
        self.critics = [Critic(state, hidden, action, norm, k) for k in keys[1:]]
        self.log_temperature = jnp.log(jnp.asarray(settings.temperature))

    def sample(self, x: Array, key: Array, shard: Shard = WHOLE) -> tuple[Array, Array]:
        """Actions (n, size) drawn in x (n, columns), and the logarithm of their density (n,).

        shard: of a batch, that x is
        """
        mean, log_deviation = jax.vmap(self.actor)(x)
        noise = shard.rows(jax.random.normal(key, (shard.of_all(len(mean)), *mean.shape[1:])))
        before = mean + jnp.exp(log_deviation) * noise
        normal = -0.5 * noise**2 - log_deviation - 0.5 * jnp.log(2 * jnp.pi)
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not underflow.
        squash = 2 * (jnp.log(2.0) - before - jax.nn.softplus(-2 * before))
        return jnp.tanh(before), (normal - squash).sum(axis=-1)

    def values(self, x: Array, action: Array) -> Array:
        """Q by each critic, (critics, n)."""
        return jnp.stack([jax.vmap(critic)(x, action) for critic in self.critics])


class SAC(Agent):
    """Soft actor-critic from single transitions.

    Its kin in `baselines/` have another network (`make_network`), draw other transitions (`draw`)
    and have another loss; acting, replay, optimiser and checkpoints are these.
    """

    Settings: ClassVar[type[AgentSettings]] = SACSettings
    run_defaults = RunSettings(num_envs=1, evaluation_episodes=8)
    lstm_size = 0

    def __init__(
        self, settings: Any, run: RunSettings, envs: LearnableEnvs, rng: np.random.Generator
    ) -> None:
        self.rng = rng
        (columns,) = envs.single_observation_space.shape
        space = envs.single_action_space
        self.size = int(np.prod(space.shape))
        self._description = {
            "kind": "actor",
            "low": space.low.ravel().tolist(),
            "high": space.high.ravel().tolist(),
        }
        self.base = envs.layout.slices["base"].stop  # columns that the environment itself observes
        network = self.make_network(settings, envs, jax.random.key(run.seed))
        super().__init__(settings, run, network)
        self.state["key"] = jax.random.key_data(jax.random.key(run.seed + 1))
        self.entropy = -float(self.size) if settings.entropy is None else settings.entropy
        keeps_switch = settings.observes_switch and envs.timing.arrives_in_time
        self.row = Row(columns, keeps_switch, actions=self.size)
        self.hindsight = Hindsight.of(settings, envs, self.row)
        self.replay = self.new_replay(settings.replay_size)
        self.normal = Normaliser(columns) if settings.normalise else None
        self._told: Normal | None = None  # of what others saw
        self._columns = columns
        self.policy = self.policy_of(self.state["online"])
        self._update = jax.jit(self._updates, donate_argnums=0)

    def make_network(self, settings: Any, envs: LearnableEnvs, key: Array) -> Network:
        return Network(settings, envs.single_observation_space.shape[0], self.size, key)

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        super().check(settings, envs)
        check_continuous(settings.agent, envs)
        check_hindsight(settings, envs)

    def policy_of(self, weights: Any) -> ActorPolicy:
        return ActorPolicy.of(self.named(weights), *self._normal(), self._description)

    def _normal(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean of observations, and one over their deviation."""
        if self._told is not None:
            return self._told
        if self.normal is None:
            return np.zeros(self._columns, np.float32), np.ones(self._columns, np.float32)
        return self.normal.mean_and_scale()

    # --- Acting and remembering

    def act(self, observation: Any, steps: int) -> tuple[NDArray[Any], Batch]:
        if steps < self.settings.learning_starts:
            action = self.rng.uniform(-1, 1, (len(observation), self.size)).astype(np.float32)
        else:
            action = self.policy.sample(observation, self.rng)
        return self.policy.to_environment(action), {"action": action}

    def remember(self, step: Step) -> None:
        self.replay.add(step)
        self.notice(step)

    def notice(self, step: Step) -> None:
        if self.normal is not None and self.hindsight is None:
            self.normal.add(step.observation_capture)

    def noticed(self) -> Batch:
        return {} if self.normal is None else self.normal.arrays()

    def restore_noticed(self, arrays: Batch) -> None:
        if self.normal is not None and arrays:
            self.normal.restore(arrays)

    def seen(self) -> Any:
        return None if self.normal is None else self.normal_now()

    def see_with(self, seen: Any) -> None:
        self._told = seen

    def new_replay(self, capacity: int) -> DrawnReplay:
        """For so many transitions of `num_envs` environments."""
        n, scale = self._run.num_envs, self.settings.reward_scale
        if self.hindsight is not None:
            return HindsightReplay(capacity, n, self.hindsight, scale)
        return DrawnReplay(capacity, n, self.row, self.lstm_size, scale)

    def ready(self, steps: int) -> bool:
        held = min(self.replay.added, self.replay.length)
        span = 1 if self.hindsight is None else self.hindsight.span
        return steps >= self.settings.learning_starts and held >= span

    # --- Learning

    def sample(self, updates: int) -> Batch:
        """Batches (updates, batch_size, ...), and what observations are normalised by."""
        found = self.draw((updates, self.settings.batch_size))
        if self.normal is not None and self.hindsight is not None:
            # What is learned from is not what was seen.
            self.normal.add(found[0, :, self.row.places["observation_capture"]])
        return {"transitions": found, "normal": self.normal_now()}

    def normal_now(self) -> Any:
        """What observations are normalised by, for compiled code."""
        return Normal(*self._normal())

    def draw(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Random transitions (*shape, width)."""
        found: NDArray[np.float32]
        found = self.replay.sample(self.rng, int(np.prod(shape)))["transitions"]
        return found.reshape(*shape, -1)

    def dispatch(self, batches: Batch, lap: Lap | None = None) -> None:
        self.state, measured = self._update(self.state, batches)
        self.finish_piece(measured, "fitting", lap)
        self._under_way.append(measured)

    def _updates(self, state: Any, batches: Any) -> tuple[Any, Any]:
        drawn = {name: batches[name] for name in self.drawn}
        given = {name: value for name, value in batches.items() if name not in drawn}

        def one(state: Any, batch: Any) -> tuple[Any, Any]:
            return self._one_update(state, {**batch, **given})

        state, measured = jax.lax.scan(one, state, drawn)
        # The next dispatch reuses the buffers of the state; the policy needs its own.
        return state, {**measured, "policy": jnp.copy(state["online"])}

    def _one_update(self, state: Any, batch: Any) -> tuple[Any, Any]:
        gradient, measured = self.gradient(state, batch)
        return self.stepped(state, gradient), measured

    def gradient(self, state: Any, batch: Any) -> tuple[Any, Any]:
        steps = {**batch, **self.row.unpack(batch["transitions"])}
        for name in self.row.observations:
            steps[name] = batch["normal"](steps[name])
        _, *keys = jax.random.split(jax.random.wrap_key_data(state["key"]), 3)

        def loss(online: Any) -> tuple[Any, Any]:
            return self.loss(self.network(online), self.network(state["target"]), steps, keys)

        (value, measured), gradient = jax.value_and_grad(loss, has_aux=True)(state["online"])
        return gradient, {"loss": value, **measured}

    def stepped(self, state: Any, gradient: Any) -> Any:
        """A step down the gradient, the target network after it, and the next key."""
        key = jax.random.split(jax.random.wrap_key_data(state["key"]), 3)[0]
        state = self.step_optimiser({**state, "key": jax.random.key_data(key)}, gradient)
        tau = self.settings.target_tau
        state["target"] = optax.incremental_update(state["online"], state["target"], tau)
        return state

    def loss(self, online: Any, target: Any, steps: Any, keys: Any) -> tuple[Any, Any]:
        x, frozen = steps["observation_capture"], jax.lax.stop_gradient
        temperature = frozen(jnp.exp(online.log_temperature))

        def bootstrap(x_next: Any) -> Any:
            action, density = online.sample(x_next, keys[0], self.shard)
            return target.values(x_next, action).min(axis=0) - temperature * density

        y = frozen(bellman_target(self.settings, steps, bootstrap))
        q = online.values(x, steps["action"])
        critic_loss = 0.5 * ((q - y) ** 2).mean(axis=1).sum()
        action, density = online.sample(x, keys[1], self.shard)
        # Only what the actor learns from: the critics' own weights are frozen here.
        value = frozen_critics(online).values(x, action).min(axis=0)
        actor_loss = (temperature * density - value).mean()
        return self.total_loss(online, q, critic_loss, actor_loss, density)

    def total_loss(
        self, online: Any, q: Any, critic_loss: Any, actor_loss: Any, density: Any
    ) -> tuple[Any, Any]:
        """With that of the temperature; and what is worth watching."""
        surprise = jax.lax.stop_gradient(density.mean() + self.entropy)
        total = critic_loss + actor_loss - online.log_temperature * surprise
        temperature = jnp.exp(online.log_temperature)
        return total, {"q": q.mean(), "temperature": temperature, "entropy": -density.mean()}

    # --- Checkpoints

    def arrays(self) -> Batch:
        found = super().arrays()
        return found if self.normal is None else found | self.normal.arrays()

    def restore(self, arrays: Batch) -> None:
        if self.normal is not None:
            self.normal.restore(arrays)
        super().restore(arrays)


def frozen_critics(network: Network) -> Network:
    """The network with critics that nothing is learned of."""
    critics = jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, network.critics
    )
    return eqx.tree_at(lambda one: one.critics, network, critics)


def linear_layers(inputs: int, hidden: tuple[int, ...], keys: Any) -> list[eqx.nn.Linear]:
    """One after another, of the given sizes."""
    sizes = (inputs, *hidden)
    return [eqx.nn.Linear(sizes[i], sizes[i + 1], key=keys[i]) for i in range(len(hidden))]
