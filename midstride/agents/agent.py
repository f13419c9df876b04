"""What DQN and recurrent DQN share: the optimiser, the target network, the compiled update.

An agent's update is dispatched and not waited for: XLA computes it on its own thread while the
caller steps the physics. `sync` waits, and hands the new weights to the NumPy policy that acts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from midstride.config import Config
from midstride.networks import named_arrays
from midstride.policies import Policy
from midstride.replay import Replay
from midstride.targets import concurrent_target, full_period_target

Tree = Any
# (online network, target network, batch) -> (loss, measurements)
Loss = Callable[[Any, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]


def configure_jax() -> None:
    """Small networks: one thread for XLA, the other core for physics; compiled code is cached."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        single = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = f"{flags} {single}".strip()
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "midstride" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


class Agent:
    """A Q-network that is learned: `dispatch` an update, `sync`, act with `policy`."""

    def __init__(self, config: Config, network: eqx.Module, loss: Loss) -> None:
        self.config = config
        # Weights go in and out of the compiled update as a plain list: an Equinox module is a
        # slow argument, flattened in Python at every call.
        arrays, static = eqx.partition(network, eqx.is_array)
        online, structure = jax.tree.flatten(arrays)
        self._network = lambda weights: eqx.combine(jax.tree.unflatten(structure, weights), static)
        self._names = list(named_arrays(network))
        clip = config.max_grad_norm
        self._optimiser = optax.chain(
            optax.clip_by_global_norm(clip) if clip > 0 else optax.identity(),
            optax.adam(
                optax.linear_schedule(
                    config.learning_rate,
                    config.learning_rate * config.learning_rate_end,
                    transition_steps=max(1, config.steps // config.update_every),
                )
            ),
        )
        self.state: dict[str, Tree] = {
            "online": online,
            "target": [jnp.copy(weight) for weight in online],
            "optimiser": self._optimiser.init(online),
            "updates": jnp.zeros((), jnp.int32),
        }
        self._loss = loss
        self._update = jax.jit(self._updates, donate_argnums=0)
        self._pending: dict[str, Any] | None = None
        self.policy = Policy({})  # acts in training, with the online network
        self._publish()

    def sample(
        self, replay: Replay, rng: np.random.Generator, updates: int
    ) -> dict[str, NDArray[Any]]:
        """Batches for `dispatch`, drawn from a replay."""
        raise NotImplementedError

    def dispatch(self, batches: dict[str, NDArray[Any]]) -> None:
        """Start updates on batches (updates, batch, ...), one after another, and return at once."""
        self.state, self._pending = self._update(self.state, batches)

    def sync(self) -> dict[str, NDArray[Any]] | None:
        """Wait for the updates under way, act with their weights; their measurements, if any."""
        if self._pending is None:
            return None
        measured = {name: np.asarray(value) for name, value in self._pending.items()}
        self._pending = None
        self._publish()
        return measured

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that is learned, by name: for a checkpoint."""
        self.sync()
        leaves = jax.tree.leaves(self.state)
        return {f"{i:04d}": np.asarray(leaf) for i, leaf in enumerate(leaves)}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from `arrays` of a checkpoint."""
        leaves, structure = jax.tree.flatten(self.state)
        saved = [arrays[name] for name in sorted(arrays)]
        if [leaf.shape for leaf in leaves] != [array.shape for array in saved]:
            raise ValueError("the checkpoint is of another network")
        self.state = jax.tree.unflatten(structure, [jnp.asarray(array) for array in saved])
        self._publish()

    def _publish(self) -> None:
        # Copied: the next update may reuse the buffers of these weights.
        weights = [np.array(weight) for weight in self.state["online"]]
        self.policy.weights = dict(zip(self._names, weights, strict=True))

    def averaged_policy(self) -> Policy:
        """The policy of the target network, an average of the online ones: steadier than any.

        Checkpoints of the online network oscillate; this is what is evaluated and saved.
        """
        self.sync()
        weights = [np.array(weight) for weight in self.state["target"]]
        return Policy(dict(zip(self._names, weights, strict=True)))

    def _updates(self, state: dict[str, Tree], batches: dict[str, Any]) -> tuple[Any, Any]:
        return jax.lax.scan(self._one_update, state, batches)

    def _one_update(self, state: dict[str, Tree], batch: dict[str, Any]) -> tuple[Any, Any]:
        def loss(online: Tree) -> tuple[Any, dict[str, Any]]:
            return self._loss(self._network(online), self._network(state["target"]), batch)

        (value, measured), gradient = jax.value_and_grad(loss, has_aux=True)(state["online"])
        change, optimiser = self._optimiser.update(gradient, state["optimiser"])
        online = optax.apply_updates(state["online"], change)
        updates = state["updates"] + 1
        return {
            "online": online,
            "target": self._moved_target(online, state["target"], updates),
            "optimiser": optimiser,
            "updates": updates,
        }, {"loss": value, **measured}

    def _moved_target(self, online: Tree, target: Tree, updates: Any) -> Tree:
        if self.config.target_every:
            copy = updates % self.config.target_every == 0
            return jax.tree.map(lambda o, t: jnp.where(copy, o, t), online, target)
        return optax.incremental_update(online, target, self.config.target_tau)


def bellman_target(config: Config, batch: dict[str, Any], bootstrap: Callable[[Any], Any]) -> Any:
    """The target that the configuration asks for; `bootstrap(observation)` is the value there."""
    if config.target == "full_period":
        return full_period_target(
            batch["reward"],
            batch["terminated"],
            bootstrap(batch["next_observation"]),
            batch["bootstrap_discount"],
        )
    return concurrent_target(
        batch["reward_before"],
        batch["reward_after"],
        batch["terminated"],
        bootstrap(batch["observation_at_switch"]),
        config.gamma,
        batch["latency_share"],
    )


def td_loss(q: Any, target: Any, weights: Any) -> tuple[Any, dict[str, Any]]:
    """Huber loss of chosen values against their targets, and what is worth watching."""
    error = q - jax.lax.stop_gradient(target)
    loss = (weights * optax.huber_loss(error)).mean()
    return loss, {"q": q.mean(), "target": target.mean(), "error": error}
