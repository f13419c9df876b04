"""What all agents share: the optimiser, the target network, the compiled update.

An agent's update is dispatched and not waited for: XLA computes it on its own thread while the
caller steps the physics and draws the next batch. `sync` hands finished weights to the NumPy policy
that acts.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from midstride.learn.config import AnyConfig, Config
from midstride.learn.networks import named_arrays
from midstride.learn.replay import Replay
from midstride.learn.targets import concurrent_target, full_period_target
from midstride.policies import AnyPolicy, Policy

Tree = Any
Lap = Callable[[str], None]  # called when a piece of work, which it is told, is done
# (online network, target network, batch) -> (loss, measurements)
Loss = Callable[[Any, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]


def configure_jax() -> None:
    """Small networks: one thread for XLA, one for physics and NumPy; compiled code is cached."""
    threadpool_limits(1)  # NumPy's acting policy would take the cores from both
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

    config: Any
    acts_with = "online"  # which weights

    def __init__(self, config: AnyConfig, network: eqx.Module, loss: Loss | None = None) -> None:
        """loss: of one batch; a subclass without it has updates of its own."""
        self.config = config
        # All weights are one vector in the compiled update: a few arrays go in and out instead of
        # dozens, and the optimiser is one loop over numbers.
        arrays, static = eqx.partition(network, eqx.is_array)
        online, unravel = ravel_pytree(arrays)
        self._network = lambda weights: eqx.combine(unravel(weights), static)
        self._shapes = {name: array.shape for name, array in named_arrays(network).items()}
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
            "target": jnp.copy(online),
            "optimiser": self._optimiser.init(online),
            "updates": jnp.zeros((), jnp.int32),
        }
        self._loss = loss
        self._update = jax.jit(self._updates, donate_argnums=0)
        self._under_way: deque[dict[str, Any]] = deque()
        self.policy: Any = self._policy(online)  # acts in training

    def _policy(self, weights: Any) -> AnyPolicy:
        return Policy(self._named(weights))

    def sample(
        self, replay: Replay, rng: np.random.Generator, updates: int
    ) -> dict[str, NDArray[Any]]:
        """Batches for `dispatch`, drawn from a replay."""
        raise NotImplementedError

    def dispatch(self, batches: dict[str, NDArray[Any]], lap: Lap | None = None) -> None:
        """Start updates on batches (updates, batch, ...), one after another, and return at once.

        lap: wait for each piece of work, and call it with the piece's name
        """
        self.state, measured = self._update(self.state, batches)
        finish_piece(measured, "fitting", lap)
        self._under_way.append(measured)

    def wait(self) -> None:
        """Until nothing is computed; who acts with which weights stays as it is."""
        jax.block_until_ready(self.state)

    def sync(self, leave: int = 0) -> dict[str, NDArray[Any]] | None:
        """Wait until at most `leave` dispatches are under way, and act with the latest that ended.

        Returns its measurements, or None if there was nothing to wait for.
        """
        measured = None
        while len(self._under_way) > leave:
            measured = self._finish(self._under_way.popleft())
        return measured

    def _finish(self, outcome: dict[str, Any]) -> dict[str, NDArray[Any]]:
        self.policy.weights = self._policy(outcome.pop("policy")).weights
        return {name: np.asarray(value) for name, value in outcome.items()}

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
        self.policy.weights = self._policy(self.state[self.acts_with]).weights

    def _named(self, weights: Any) -> dict[str, NDArray[Any]]:
        """A vector of weights as named arrays, copied: the next update may reuse its memory."""
        vector = np.array(weights)
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self._shapes.values()])
        parts = np.split(vector, ends[:-1])
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def averaged_policy(self) -> AnyPolicy:
        """The policy of the target network, an average of the online ones: steadier than any.

        Checkpoints of the online network oscillate; this is what is evaluated and saved.
        """
        self.sync()
        return self._policy(self.state["target"])

    def _updates(self, state: dict[str, Tree], batches: dict[str, Any]) -> tuple[Any, Any]:
        state, measured = jax.lax.scan(self._one_update, state, batches)
        # The next dispatch reuses the buffers of the state; the policy needs its own.
        return state, {**measured, "policy": jnp.copy(state["online"])}

    def _one_update(self, state: dict[str, Tree], batch: dict[str, Any]) -> tuple[Any, Any]:
        def loss(online: Tree) -> tuple[Any, dict[str, Any]]:
            assert self._loss is not None
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
            return jnp.where(copy, online, target)
        return optax.incremental_update(online, target, self.config.target_tau)


def finish_piece(results: Any, piece: str, lap: Lap | None) -> None:
    if lap is not None:
        jax.block_until_ready(results)
        lap(piece)


def bellman_target(config: Config, batch: dict[str, Any], bootstrap: Callable[[Any], Any]) -> Any:
    """The target that the configuration asks for; `bootstrap(observation)` is the value there."""
    if config.target == "full_period":
        return full_period_target(
            batch["reward_before"] + batch["reward_after"],
            batch["terminated"],
            bootstrap(batch["next_observation"]),
            batch.get("bootstrap_discount", config.gamma),
        )
    return concurrent_target(
        batch["reward_before"],
        batch["reward_after"],
        batch["terminated"],
        bootstrap(batch["observation_at_switch"]),
        config.gamma,
        batch["latency_share"],
    )


def td_loss(q: Any, target: Any, weights: Any = 1.0) -> tuple[Any, dict[str, Any]]:
    """Huber loss of chosen values against their targets, and what is worth watching."""
    error = q - jax.lax.stop_gradient(target)
    loss = (weights * optax.huber_loss(error)).mean()
    return loss, {"q": q.mean(), "target": target.mean(), "error": error}
