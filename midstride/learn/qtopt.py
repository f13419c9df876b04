"""QT-Opt (Kalashnikov et al., 2018) with concurrent knowledge: the paper's Algorithm 1.

Two pieces with a plain interface, compiled apart so that they can run on different machines:
`label` (the Bellman updater: transitions -> targets, by the cross-entropy method on two target
networks) and `fit` (the trainer: labelled transitions -> weights). A dispatch labels a block of
transitions and fits several batches from it; every label is used a few times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from midstride.learn import cem
from midstride.learn.agent import Agent, Lap, Tree, finish_piece
from midstride.learn.config import GraspConfig
from midstride.learn.networks import Critic
from midstride.learn.replay import Experience
from midstride.learn.targets import concurrent_target, continuous_target
from midstride.policies import CemPolicy

# Values lie between these: a success is worth 1, less what its steps cost; cross-entropy wants
# shares, so Q is where a value lies between them.
LOWEST, HIGHEST = -0.25, 1.0
_FITTED = ("state", "image", "action", "auxiliary")  # of a transition; labels need the rest
_AUXILIARY_LEARNING_RATE = 1e-3
_SEARCHES = 32  # done at once: their numbers fit into a core's cache
AUXILIARY_BLOCK = 100  # updates of the auxiliary head that are dispatched at once


class QTOpt(Agent):
    """Q(image, state, knowledge, action), learned by cross-entropy on a sigmoid."""

    config: GraspConfig
    network: type[Critic] = Critic

    def __init__(
        self,
        config: GraspConfig,
        blocks: dict[str, slice],
        space: cem.ActionSpace,
        auxiliary: NDArray[np.floating],
    ) -> None:
        """blocks: columns of the state; auxiliary: weights of what its head predicts."""
        self.space = space
        self._weights = jnp.asarray(auxiliary, jnp.float32)
        self.search = cem.Search(samples=config.samples, rounds=config.rounds)
        self._description = {
            "blocks": {name: [part.start, part.stop] for name, part in blocks.items()},
            "low": space.low.tolist(),
            "high": space.high.tolist(),
            "settings": space.settings.tolist(),
            "search": self.search._replace(rounds=config.acting_rounds)._asdict(),
        }
        network = self.network(
            blocks,
            config.image_size if config.observation == "image" else 0,
            len(auxiliary) if config.auxiliary_weight > 0 else 0,
            space.size,
            config.hidden_size,
            jax.random.key(config.seed),
        )
        # In training it acts with weights newer than what is evaluated, steadier than the newest.
        self.acts_with = "target" if config.averaged else "online"
        super().__init__(config, network)
        online = self.state["online"]
        self.state |= {
            "lagged": jnp.copy(online),
            "acting": jnp.copy(online),
            "key": jax.random.key_data(jax.random.key(config.seed + 1)),
        }
        self._label = jax.jit(self._label_block)
        self._update = jax.jit(self._fit_block, donate_argnums=0)
        self._alone = optax.adam(_AUXILIARY_LEARNING_RATE)
        self._auxiliary_updates = jax.jit(self._learn_auxiliary, donate_argnums=(0, 1))

    def _policy(self, weights: Any) -> CemPolicy:
        named = self._named(weights)
        return CemPolicy(
            {name: array for name, array in named.items() if not name.startswith("auxiliary")},
            dict(self._description),
        )

    def averaged_policy(self) -> CemPolicy:
        """The policy of averaged weights: steadier than any single ones."""
        self.sync()
        return self._policy(self.state["acting" if self.config.averaged else "online"])

    # --- Batches

    def sample_experience(
        self,
        sources: Sequence[tuple[Experience, float]],
        rng: np.random.Generator,
        updates: int,
    ) -> dict[str, NDArray[Any]]:
        """A block of transitions, and which of them (updates, batch) each update is of.

        sources: where from, and which share of the block from each
        """
        reuse, total = self.config.label_reuse, updates * self.config.batch_size
        count = -(-total // reuse)
        counts = [round(share * count) for _, share in sources]
        counts[-1] += count - sum(counts)
        parts = [r.sample(rng, c) for (r, _), c in zip(sources, counts, strict=True) if c]
        block = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        rounds = [rng.permutation(count) for _ in range(reuse)]
        index = np.concatenate(rounds)[:total].reshape(updates, self.config.batch_size)
        return {**block, "index": index}

    # --- Labels: the Bellman updater

    def label(self, target: Any, lagged: Any, batch: dict[str, Any], key: Any) -> Any:
        """Targets (n,) of Q: the smaller value, by two networks, of the best next action.

        gamma is per second. Full period: from one observation to the next. Concurrent: from the
        observation to the switch, where the new action is in flight (Eq. 8).
        """
        config = self.config
        concurrent = config.target == "concurrent"
        where = "switch" if concurrent else "next"
        state, image = batch[f"{where}_state"], batch.get(f"{where}_image")
        features, _ = target.encode(state, image)

        def best(one: tuple[Any, Any]) -> tuple[Any, Any]:
            seen, key = one
            action, score = cem.maximise(
                lambda actions: target.score(seen, actions), key, 1, self.space, self.search
            )
            return action[0], score[0]

        keys = jax.random.split(key, len(state))
        action, first = jax.lax.map(best, (features, keys), batch_size=_SEARCHES)
        second = lagged.score(lagged.encode(state, image)[0], action)
        value = LOWEST + (HIGHEST - LOWEST) * jax.nn.sigmoid(jnp.minimum(first, second))
        reward, ended, gamma = batch["reward"], batch["terminated"], config.gamma
        if concurrent:
            before = batch["reward_before"]
            y = concurrent_target(before, reward - before, ended, value, gamma, batch["latency_s"])
        else:
            y = continuous_target(reward, ended, value, gamma, batch["period_s"])
        return jnp.clip((y - LOWEST) / (HIGHEST - LOWEST), 0.0, 1.0)

    # --- Fitting: the trainer

    def fit(self, state: dict[str, Tree], batch: dict[str, Any], key: Any) -> tuple[Any, Any]:
        """One update on labelled transitions ("label")."""
        config = self.config

        def loss(online: Tree) -> tuple[Any, dict[str, Any]]:
            network = self._network(online)
            features, predicted = network.encode(batch["state"], self._augmented(batch, key))
            logits = network.score(features, batch["action"])
            q_loss = optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean()
            auxiliary = self._auxiliary_loss(predicted, batch)
            total = q_loss + config.auxiliary_weight * auxiliary
            return total, {"q": jax.nn.sigmoid(logits).mean(), "auxiliary": auxiliary}

        (value, measured), gradient = jax.value_and_grad(loss, has_aux=True)(state["online"])
        change, optimiser = self._optimiser.update(gradient, state["optimiser"])
        online = optax.apply_updates(state["online"], change)
        updates = state["updates"] + 1
        target = optax.incremental_update(online, state["target"], config.target_tau)
        return {
            **state,
            "online": online,
            "target": target,
            "lagged": jnp.where(updates % config.target_lag == 0, target, state["lagged"]),
            "acting": optax.incremental_update(online, state["acting"], config.acting_tau),
            "optimiser": optimiser,
            "updates": updates,
        }, {"loss": value, **measured}

    # --- Both, one after the other

    def dispatch(self, batches: dict[str, NDArray[Any]], lap: Lap | None = None) -> None:
        """Label a block, then fit the batches that `index` makes of it; return at once."""
        state = self.state
        fitted = {name: batches[name] for name in _FITTED if name in batches}
        judged = {name: array for name, array in batches.items() if name not in _FITTED}
        index = judged.pop("index")
        labels, key, fit_key = self._label(state["target"], state["lagged"], state["key"], judged)
        finish_piece(labels, "labelling", lap)
        self.state, measured = self._update(
            {**state, "key": key}, {**fitted, "label": labels}, index, fit_key
        )
        finish_piece(measured, "fitting", lap)
        self._under_way.append(measured)

    def _label_block(self, target: Tree, lagged: Tree, key: Any, batch: dict[str, Any]) -> Any:
        """Labels, and the keys that come after: of the next block, of fitting this one."""
        key, label_key, fit_key = jax.random.split(jax.random.wrap_key_data(key), 3)
        labels = self.label(self._network(target), self._network(lagged), batch, label_key)
        return labels, jax.random.key_data(key), jax.random.key_data(fit_key)

    def _fit_block(self, state: Any, block: dict[str, Any], index: Any, key: Any) -> Any:
        def one(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            rows, key = now
            return self.fit(state, {name: array[rows] for name, array in block.items()}, key)

        keys = jax.random.split(jax.random.wrap_key_data(key), len(index))
        state, measured = jax.lax.scan(one, state, (index, keys))
        measured["label"] = block["label"].mean()
        return state, {**measured, "policy": jnp.copy(state[self.acts_with])}

    # --- What is ours and not the paper's

    def learn_auxiliary(self, replay: Experience, rng: np.random.Generator, updates: int) -> None:
        """Teach the image's layers with the auxiliary head alone; all networks start from it."""
        if self.config.observation != "image" or not self.config.auxiliary_weight:
            return
        optimiser = self._alone.init(self.state["online"])
        for _ in range(-(-updates // AUXILIARY_BLOCK)):
            count = AUXILIARY_BLOCK * self.config.batch_size
            batch = replay.sample(rng, count)
            chosen = {name: batch[name] for name in ("state", "image", "auxiliary")}
            self.state, optimiser = self._auxiliary_updates(self.state, optimiser, chosen)
            self.wait()  # a block is large: one at a time
        online = self.state["online"]
        self.state |= {name: jnp.copy(online) for name in ("target", "lagged", "acting")}
        self.policy = self._policy(online)

    def _learn_auxiliary(self, state: Any, optimiser: Any, batch: dict[str, Any]) -> Any:
        def one(carry: Any, rows: dict[str, Any]) -> tuple[Any, None]:
            online, optimiser, key = carry
            key, now = jax.random.split(key)

            def loss(online: Tree) -> Any:
                image = self._augmented(rows, now)
                predicted = self._network(online).encode(rows["state"], image)[1]
                return self._auxiliary_loss(predicted, rows)

            change, optimiser = self._alone.update(jax.grad(loss)(online), optimiser)
            return (optax.apply_updates(online, change), optimiser, key), None

        size = self.config.batch_size
        batches = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), batch)
        key = jax.random.wrap_key_data(state["key"])
        (online, optimiser, key), _ = jax.lax.scan(one, (state["online"], optimiser, key), batches)
        return {**state, "online": online, "key": jax.random.key_data(key)}, optimiser

    def _auxiliary_loss(self, predicted: Any, batch: dict[str, Any]) -> Any:
        if predicted is None:
            return jnp.zeros(())
        return (self._weights * jnp.abs(predicted - batch["auxiliary"])).sum(axis=1).mean()

    def _augmented(self, batch: dict[str, Any], key: Any) -> Any:
        image = batch.get("image")
        if image is None:
            return None
        shift_key, colour_key = jax.random.split(key)
        if self.config.shift:
            image = shifted(image, shift_key, self.config.shift)
        if self.config.colour:
            image = tinted(image, colour_key, self.config.colour)
        return image


def shifted(image: Any, key: Any, most: int) -> Any:
    """Images (n, size, size, 3), each moved by up to `most` pixels; edges are repeated."""
    n, size = image.shape[:2]
    moved = jax.random.randint(key, (2, n, 1), -most, most + 1)
    rows, columns = jnp.clip(jnp.arange(size) + moved, 0, size - 1)
    # A pixel as one number: gathers go by numbers, and are slow.
    pixel = jnp.pad(image, ((0, 0), (0, 0), (0, 0), (0, 1)))
    pixel = jax.lax.bitcast_convert_type(pixel, jnp.uint32)
    pixel = jnp.take_along_axis(pixel, rows[:, :, None], axis=1)
    pixel = jnp.take_along_axis(pixel, columns[:, None, :], axis=2)
    return jax.lax.bitcast_convert_type(pixel, jnp.uint8)[..., :3]


def tinted(image: Any, key: Any, most: float) -> Any:
    """Images (n, size, size, 3) with each channel scaled by up to 1 +- `most`."""
    factor = 1 + most * jax.random.uniform(key, (len(image), 1, 1, 3), minval=-1, maxval=1)
    return jnp.clip(image * factor, 0, 255)
