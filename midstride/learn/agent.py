"""What all agents share: weights as one vector, updates that nobody waits for.

An agent acts, remembers, and learns. Its update is dispatched and not waited for: XLA computes it
on its own thread while the caller steps the physics and draws the next batch. `sync` hands
finished weights to the NumPy policy that acts; nothing else does. Who looks (an evaluation, a
checkpoint) waits for what is computed and takes copies, so looking changes nothing.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from midstride.envs.learnable import LearnableEnvs
from midstride.envs.vector import Step
from midstride.finite import is_finite, misfits
from midstride.learn.agent_settings import AgentSettings, RunSettings
from midstride.learn.shard import WHOLE, Shard
from midstride.policies import Policy

Tree = Any
Batch = dict[str, NDArray[Any]]
Lap = Callable[[str], None]  # called when a piece of work, which it is told, is done


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


class Agent(ABC):
    """An agent in training: what the training loop asks of it, and its weights.

    `state` holds everything that is learned, weights as flat vectors: a few arrays go into and out
    of the compiled update instead of dozens, and the optimiser is one loop over numbers.
    """

    Settings: ClassVar[type[AgentSettings]]
    run_defaults: ClassVar[RunSettings] = RunSettings()
    acts_with: str = "online"  # which weights
    waits: ClassVar[bool] = False  # whether nothing is done while an update is computed
    drawn: tuple[str, ...] = ("transitions",)  # of what `sample` gives, what each update has anew
    shard: Shard = WHOLE  # of every batch, that is fitted here
    rng: np.random.Generator
    policy: Any  # NumPy; acts in training
    replay: Any
    values: Any = None  # what the numbers of a critic mean, where others must know

    def __init__(self, settings: Any, run: RunSettings, network: eqx.Module) -> None:
        self.settings, self._run = settings, run
        arrays, static = eqx.partition(network, eqx.is_array)
        online, unravel = ravel_pytree(arrays)
        self.network: Callable[[Any], Any] = lambda w: eqx.combine(unravel(w), static)
        self._shapes = {name: array.shape for name, array in named_arrays(network).items()}
        clip, rate = settings.max_grad_norm, settings.learning_rate
        updates = max(1, settings.updates_in(run.steps))
        schedule = optax.linear_schedule(rate, rate * settings.learning_rate_end, updates)
        self._optimiser = optax.chain(
            optax.clip_by_global_norm(clip) if clip > 0 else optax.identity(),
            optax.adam(schedule),
        )
        self.state: dict[str, Tree] = {
            "online": online,
            "target": jnp.copy(online),
            "optimiser": self._optimiser.init(online),
            "updates": jnp.zeros((), jnp.int32),
        }
        self._under_way: deque[dict[str, Any]] = deque()

    # --- What the training loop asks

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        """An error in one sentence if such an agent cannot learn in these environments."""
        if settings.observes_switch and envs.timing.latency_bounds_ticks[0] == 0:
            raise ValueError(
                "the concurrent target needs a latency above 0 at every step: with none, the "
                "switch is the capture and nothing is learned; use target full_period"
            )
        if settings.observes_switch and not envs.timing.arrives_in_time:
            raise ValueError(
                "the concurrent target needs the observation at the switch in every period, and "
                "with a latency longer than the period, or with lost decisions, there is none: "
                "use target full_period"
            )
        if settings.observes_switch and envs.hints.rests:
            raise ValueError("the concurrent target is for concurrent control: use full_period")

    def gather(self, make_envs: Callable[[], LearnableEnvs], folder: Path | None) -> None:  # noqa: B027
        """Have what is learned from beside its own steps; `folder` keeps what took long to make."""

    def tidy(self, folder: Path) -> None:  # noqa: B027
        """Remove what `gather` kept: the training has ended."""

    def prepare(self) -> None:  # noqa: B027
        """Learn what comes before the first step of its own."""

    @abstractmethod
    def act(self, observation: Any, steps: int) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Actions to try after so many steps, and what is to be remembered of the choice."""

    @abstractmethod
    def remember(self, step: Step) -> None:
        """Keep a step, to learn from."""

    @abstractmethod
    def ready(self, steps: int) -> bool:
        """Whether there is enough to learn from."""

    def calls_for(self, steps: int) -> float:
        """Updates, and parts of one, that so many environment steps call for once it is ready."""
        return steps / float(self.settings.update_every)

    @abstractmethod
    def sample(self, updates: int) -> Batch:
        """Batches for `dispatch`."""

    @abstractmethod
    def dispatch(self, batches: Batch, lap: Lap | None = None) -> None:
        """Start updates on batches, one after another, and return at once.

        lap: wait for each piece of work, and call it with the piece's name
        """

    def epsilon(self, steps: int) -> float:
        """Share of random actions after so many steps."""
        return 0.0

    def averaged_policy(self) -> Policy:
        """The policy of the target network, an average of the online ones: steadier than any.

        Checkpoints of the online network oscillate; this is what is evaluated and saved.
        """
        return self.policy_of(self.averaged_weights())

    def averaged_weights(self) -> NDArray[np.float32]:
        """Those of `averaged_policy`, copied."""
        return np.array(self.state["target"])

    @abstractmethod
    def policy_of(self, weights: Any) -> Any:
        """The NumPy policy of a vector of weights."""

    # --- Updates under way

    def wait(self) -> None:
        """Until nothing is computed; who acts with which weights stays as it is."""
        jax.block_until_ready(self.state)

    def sync(self, leave: int = 0) -> dict[str, NDArray[Any]] | None:
        """Wait until at most `leave` dispatches are under way, and act with the latest that ended.

        Returns its measurements, or None if there was nothing to wait for.
        """
        measured = None
        while len(self._under_way) > leave:
            measured = self.finished(self._under_way.popleft())
        return measured

    def finished(self, outcome: dict[str, Any]) -> dict[str, NDArray[Any]]:
        """Hand over the weights of a dispatch that ended, unless it went wrong."""
        weights = np.asarray(outcome.pop("policy"))
        measured = {name: np.asarray(value) for name, value in outcome.items()}
        if not is_finite(measured["loss"]):
            raise ValueError(self._went_wrong(measured["loss"]))
        if not is_finite(weights):
            raise ValueError(f"a weight of the network is no finite number after {self._rate}")
        self.act_with(weights)
        return measured

    def act_with(self, weights: Any) -> None:
        """Act with a vector of weights from now on; what the policy draws from goes on."""
        self.policy.weights = self.policy_of(weights).weights

    @property
    def _rate(self) -> str:
        """How the weights came to be what they are, for errors."""
        s = self.settings
        return (
            f"{int(self.state['updates']):,} updates: try a smaller learning_rate than "
            f"{s.learning_rate:g}, or a smaller max_grad_norm than {s.max_grad_norm:g}"
        )

    def _went_wrong(self, losses: NDArray[Any]) -> str:
        """Which loss, at which update, of those of a dispatch that ended."""
        later = sum(len(np.atleast_1d(outcome["loss"])) for outcome in self._under_way)
        first = int(np.argmax(misfits(np.atleast_1d(losses))))
        update = int(self.state["updates"]) - later - losses.size + first + 1
        return (
            f"the loss of {self.settings.agent} became {losses.flat[first]:g} at update "
            f"{update:,}: rewards or observations may be too large, or the learning_rate "
            f"({self.settings.learning_rate:g}) too high"
        )

    @staticmethod
    def finish_piece(results: Any, piece: str, lap: Lap | None) -> None:
        """Where the time is measured, wait for a piece of work."""
        if lap is not None:
            jax.block_until_ready(results)
            lap(piece)

    def step_optimiser(self, state: dict[str, Tree], gradient: Any) -> dict[str, Tree]:
        """Online weights, optimiser and count after a gradient; the rest as it was."""
        change, optimiser = self._optimiser.update(gradient, state["optimiser"])
        online = optax.apply_updates(state["online"], change)
        updates = state["updates"] + 1
        return {**state, "online": online, "optimiser": optimiser, "updates": updates}

    # --- Spread over machines (`scale/`): a block is sampled, labelled and fitted elsewhere

    @property
    def at_once(self) -> int:
        """Updates that a step of all environments calls for."""
        return max(1, self._run.num_envs // self.settings.update_every)

    @property
    def labels_each(self) -> float:
        """Transitions that are labelled apart for an update; 0: updates label their own."""
        return 0.0

    @property
    def blocks_before(self) -> tuple[int, int]:
        """Blocks of an auxiliary head, and of updates, before the first step."""
        return 0, 0

    @property
    def can_sample(self) -> bool:
        return len(self.replay) > 0

    def act_apart(self, seeds: Sequence[int]) -> None:  # noqa: B027
        """Have the acting policy draw otherwise than those of others that act beside it."""

    def notice(self, step: Step) -> None:  # noqa: B027
        """Note what is to be known of a step beside what replay keeps of it."""

    def noticed(self) -> Batch:
        """What was noted, for a checkpoint."""
        return {}

    def restore_noticed(self, arrays: Batch) -> None:  # noqa: B027
        """Go on from what `noticed` gave."""

    def seen(self) -> Any:
        """What of it a policy must know, where others act; None: nothing."""
        return None

    def see_with(self, seen: Any) -> None:  # noqa: B027
        """Let policies know what `seen` said elsewhere."""

    def divided(self, batches: Batch) -> tuple[Batch, Batch]:
        """What `sample` gave, as what is fitted and what labels are made from."""
        return batches, {}

    def shards(self, fitted: Batch, count: int) -> list[Batch]:
        """What is fitted, divided among so many who fit in step."""
        size = self.settings.batch_size // count
        return [
            {
                name: value[:, i * size : (i + 1) * size] if name in self.drawn else value
                for name, value in fitted.items()
            }
            for i in range(count)
        ]

    def new_replay(self, capacity: int) -> Any:
        """An empty replay for so many transitions of `num_envs` environments."""
        raise NotImplementedError(f"{self.settings.agent} has one replay")

    def auxiliary_batch(self) -> Batch:
        """For a block of updates of an auxiliary head."""
        raise NotImplementedError(f"{self.settings.agent} has no auxiliary head")

    def fit_auxiliary(self, batch: Batch) -> None:
        """A block of updates of the auxiliary head."""
        raise NotImplementedError(f"{self.settings.agent} has no auxiliary head")

    def start_from_online(self) -> None:  # noqa: B027
        """All networks become what the online one is: the auxiliary head has been taught."""

    def labels_with(self) -> dict[str, NDArray[np.float32]]:
        """The weights that label, copied."""
        return {}

    def labels(self, weights: Any, key: Any, judged: Batch) -> tuple[Any, Any]:
        """Labels of a block, and the key to fit it with."""
        raise NotImplementedError(f"{self.settings.agent} labels where it fits")

    def next_key(self, key: Any) -> Any:
        """The key of the block after the one that is labelled with this."""
        return key

    def fit_labelled(self, fitted: Batch, labels: Any, key: Any, fit_key: Any) -> None:
        """Start the updates on a labelled block; `key` is for the block after it."""
        self.dispatch(fitted)

    def batches_of(self, part: Batch, labels: Any, key: Any, fit_key: Any) -> list[Any]:
        """The batch of each update, of a part of a block that `shards` made."""
        updates = len(part[self.drawn[0]])
        return [
            {name: value[i] if name in self.drawn else value for name, value in part.items()}
            for i in range(updates)
        ]

    def gradient(self, state: dict[str, Tree], batch: Any) -> tuple[Any, dict[str, Any]]:
        """Of the loss of a batch (or of this one's `shard` of it), and what is worth watching."""
        raise NotImplementedError(f"{self.settings.agent} has no gradient of one batch")

    def stepped(self, state: dict[str, Tree], gradient: Any) -> dict[str, Tree]:
        """The state after an update with a gradient."""
        raise NotImplementedError(f"{self.settings.agent} has no gradient of one batch")

    # --- Checkpoints

    def arrays(self) -> Batch:
        """Everything that is learned or remembered, by name: for a checkpoint.

        Updates that nobody has waited for yet are in it as what will be handed over, and the
        weights that act until then: a training that goes on from it does so in the same order.
        An error if any weight is no finite number: such a checkpoint would be worth nothing.
        """
        learned = {f"agent.{i:04d}": array for i, array in enumerate(self.state_arrays())}
        parts = {"replay": self.replay.arrays(), "acting": self.policy.weights}
        for i, outcome in enumerate(self._under_way):
            parts[f"under_way.{i:04d}"] = {n: np.asarray(value) for n, value in outcome.items()}
        return learned | {f"{part}.{n}": a for part, held in parts.items() for n, a in held.items()}

    def restore(self, arrays: Batch) -> None:
        """Go on from `arrays` of a checkpoint; the environments begin other episodes."""
        self.restore_state([arrays[n] for n in sorted(arrays) if n.startswith("agent.")])
        acting = part_of(arrays, "acting")
        shapes = {name: np.shape(array) for name, array in self.policy.weights.items()}
        if {name: array.shape for name, array in acting.items()} != shapes:
            raise ValueError("the checkpoint does not say what acted: another version wrote it")
        self.policy.weights = acting
        self.replay.restore(part_of(arrays, "replay"))
        under_way = sorted({name[:14] for name in arrays if name.startswith("under_way.")})
        self._under_way = deque(part_of(arrays, name) for name in under_way)

    def state_arrays(self) -> list[NDArray[Any]]:
        """Everything that is learned; an error if any of it is no finite number."""
        learned = [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)]
        if not all(is_finite(array) for array in learned):
            raise ValueError(f"a weight of the network is no finite number after {self._rate}")
        return learned

    def restore_state(self, saved: Sequence[NDArray[Any]]) -> None:
        """Go on from what `state_arrays` gave."""
        leaves, structure = jax.tree.flatten(self.state)
        if [leaf.shape for leaf in leaves] != [array.shape for array in saved]:
            raise ValueError("the checkpoint is of another network")
        self.state = jax.tree.unflatten(structure, [jnp.array(array) for array in saved])

    def about(self) -> dict[str, Any]:
        """What else a checkpoint needs, as JSON can hold it."""
        return {}

    def restore_about(self, about: dict[str, Any]) -> None:  # noqa: B027
        """Go on from what `about` told."""

    def named(self, weights: Any) -> dict[str, NDArray[Any]]:
        """A vector of weights as named arrays, copied: the next update may reuse its memory."""
        vector = np.array(weights)
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self._shapes.values()])
        parts = np.split(vector, ends[:-1])
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }


def part_of(arrays: Batch, part: str) -> Batch:
    """Those of a part of a checkpoint, without its name: of `replay`, say."""
    prefix = f"{part}."
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def named_arrays(network: eqx.Module) -> dict[str, jax.Array]:
    """The weights of a network by name, such as 'head.layers.0.weight'."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(network, eqx.is_array))
    return {_name(path): leaf for path, leaf in leaves}


def _name(path: tuple[object, ...]) -> str:
    return ".".join(str(getattr(k, "name", getattr(k, "idx", getattr(k, "key", k)))) for k in path)
