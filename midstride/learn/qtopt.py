"""QT-Opt (Kalashnikov et al., 2018) with concurrent knowledge: the paper's Algorithm 1.

Its settings are a quarter of this file: an agent is read in one place (so it has some 400 lines).
Two pieces with a plain interface, compiled apart so that they can run on different machines:
`label` (the Bellman updater: transitions -> targets, by the cross-entropy method on two target
networks) and `fit` (the trainer: labelled transitions -> weights). A dispatch labels a block of
transitions and fits several batches from it; every label is used a few times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from midstride.envs.learnable import LearnableEnvs
from midstride.envs.vector import Step
from midstride.learn import cem
from midstride.learn.agent import Agent, Batch, Lap, Tree
from midstride.learn.agent_settings import Count, HindsightSettings, RunSettings, Share
from midstride.learn.critic import Critic
from midstride.learn.demonstrations import Kept, demonstrations
from midstride.learn.frames import FrameReplay
from midstride.learn.images import shifted, tinted
from midstride.learn.lived import check_hindsight
from midstride.learn.relabel import Hindsight, RelabelledReplay
from midstride.learn.replay import Row
from midstride.learn.spaces import explored, observed_kinds, search_space, value_range
from midstride.learn.targets import concurrent_target, full_period_target
from midstride.learn.values import Bounded, Unbounded, Values, paid_in_a_second
from midstride.policies import CemPolicy
from midstride.settings import Range

_FITTED = ("state_capture", "image_capture", "action", "auxiliary")  # labels need the rest
_AUXILIARY_LEARNING_RATE = 1e-3
_SEARCHES = 32  # done at once: their numbers fit into a core's cache
AUXILIARY_BLOCK = 100  # updates of the auxiliary head that are dispatched at once
DEMONSTRATIONS = "demonstrations.safetensors"
_PATCH = 16  # pixels that become one place of the smallest feature map


@dataclass(frozen=True)
class QTOptSettings(HindsightSettings):
    """Of QT-Opt."""

    agent: Literal["qtopt"] = "qtopt"
    """qtopt: Q-learning with continuous actions, chosen by the cross-entropy method"""
    value_range: tuple[float, float] | None = None
    """the lowest and the highest value that a state can have (default: as the environment says): Q
    is learned as a share of the way between; where nobody says, in units of what a second pays"""

    hidden_size: Annotated[int, Range(1)] = 128
    """size of the layers on image features, state and action together"""
    samples: Annotated[int, Range(6)] = 64
    """actions that each round of the cross-entropy method draws"""
    rounds: Annotated[int, Range(1)] = 2
    """rounds of the cross-entropy method, for labels"""
    acting_rounds: Annotated[int, Range(1)] = 3
    """rounds of the cross-entropy method, for acting"""

    gamma_per_s: Annotated[float, Range(1e-6, 0.999999)] = 0.95
    """discount per second: a step of d seconds discounts by gamma^d"""
    learning_rate: Annotated[float, Range(1e-12, 1e3)] = 6e-4
    """step size of Adam at the start"""
    learning_rate_end: Share = 1.0
    """part of the learning rate that is left in the end; it falls linearly"""
    batch_size: Annotated[int, Range(1, 10**6)] = 64
    """transitions that each update learns from"""
    replay_size: Count = 48_000
    """transitions of its own that are remembered"""
    target_tau: Share = 0.01
    """how much of the online network enters the averaged target network at each update"""
    target_lag: Annotated[int, Range(1)] = 500
    """updates after which the second target network is copied from the first"""
    acting_tau: Share = 0.0005
    """how much of the online network enters the one that is evaluated and kept, at each update"""
    averaged: bool = True
    """act on averaged weights; otherwise act, evaluate and keep the newest"""
    label_reuse: Annotated[int, Range(1)] = 2
    """times that a Bellman label is learned from before it is forgotten"""

    demonstrations: Annotated[int, Range(2)] = 12_000
    """transitions that are there before its own: of the environment's scripted policies where it
    has some, else of random actions"""
    demonstration_share: Share = 0.25
    """part of every batch that is demonstrations, in all of training"""
    auxiliary_updates: Annotated[int, Range(0)] = 2_000
    """updates of the auxiliary head alone, on demonstrations (images only)"""
    offline_updates: Annotated[int, Range(0)] = 1_200
    """updates on demonstrations before acting"""

    auxiliary_weight: Annotated[float, Range(0)] = 1.0
    """weight of the loss of a head that predicts simulator state from images, in training only"""
    shift: Annotated[int, Range(0)] = 2
    """images are shifted at random by up to so many pixels, in updates only"""
    colour: Share = 0.0
    """images are tinted at random by up to this share, in updates only"""

    explore_share: Share = 0.1
    """share of random continuous actions, and of random commands, while training"""
    explore_sigma: Annotated[float, Range(0)] = 0.15
    """deviation of the noise on continuous actions while training, in halves of their range"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_range is not None and not self.value_range[0] < self.value_range[1]:
            raise ValueError(f"value_range must be a low and a high, got {self.value_range}")
        if self.hindsight_run is not None:
            raise ValueError(
                "qtopt begins with demonstrations, which are steps of its own: use hindsight_from "
                "without hindsight_run"
            )

    def shared_by(self, memories: int) -> QTOptSettings:
        return replace(self, demonstrations=max(2, self.demonstrations // memories))


class QTOpt(Agent):
    """Q(image, state, knowledge, action), between bounds where they are known."""

    Settings = QTOptSettings
    critic: type[Critic] = Critic
    run_defaults = RunSettings(
        steps=48_000,
        num_envs=64,
        evaluate_every=8_000,
        evaluation_episodes=80,
        checkpoint_every=16_000,
    )

    def __init__(
        self, settings: Any, run: RunSettings, envs: LearnableEnvs, rng: np.random.Generator
    ) -> None:
        self.rng, self._envs = rng, envs
        self.space, ends = search_space(envs)
        self.search = cem.Search(samples=settings.samples, rounds=settings.rounds)
        bounds = value_range(settings, envs)
        self.values: Values = Unbounded(1.0) if bounds is None else Bounded(*bounds)
        kinds = observed_kinds(envs)
        self._sees = "image" in kinds
        hints, blocks = envs.hints, envs.layout.slices
        has_head = self._sees and settings.auxiliary_weight > 0 and hints.auxiliary is not None
        weights = hints.auxiliary_weights if has_head else None
        self._weights = jnp.asarray(np.zeros(0) if weights is None else weights, jnp.float32)
        self._description = {
            "kind": "cem",
            "blocks": {name: [part.start, part.stop] for name, part in blocks.items()},
            "low": self.space.low.tolist(),
            "high": self.space.high.tolist(),
            "settings": self.space.settings.tolist(),
            "ends": ends,
            "search": self.search._replace(rounds=settings.acting_rounds)._asdict(),
        }
        size, _, channels = kinds["image"][0] if self._sees else (0, 0, 3)
        key = jax.random.key(run.seed)
        heads = len(self._weights)
        network = self.critic(
            blocks, size, heads, self.space.size, ends, settings.hidden_size, key, channels
        )
        # In training it acts with weights newer than what is evaluated, steadier than the newest.
        self.acts_with = "target" if settings.averaged else "online"
        super().__init__(settings, run, network)
        online = self.state["online"]
        self.state |= {
            "lagged": jnp.copy(online),
            "acting": jnp.copy(online),
            "key": jax.random.key_data(jax.random.key(run.seed + 1)),
        }
        self.policy = self.policy_of(online)
        columns = len(envs.layout.columns)
        self.hindsight = Hindsight.of(settings, envs, Row(columns, False, self.space.size))
        self.replay: Kept = self.new_replay(settings.replay_size)
        self.demonstrations: Kept | None = None
        self._label = jax.jit(self._label_block)
        self._update = jax.jit(self._fit_block, donate_argnums=0)
        self._alone = optax.adam(_AUXILIARY_LEARNING_RATE)
        self._auxiliary_updates = jax.jit(self._learn_auxiliary, donate_argnums=(0, 1))
        self._alone_state: Any = None  # of its optimiser, while the auxiliary head learns

    @classmethod
    def check(cls, settings: Any, envs: LearnableEnvs) -> None:
        super().check(settings, envs)
        search_space(envs)
        kinds = observed_kinds(envs)
        if "image" in kinds and kinds["image"][0][0] % _PATCH:
            size = kinds["image"][0][0]
            raise ValueError(f"qtopt needs an image_size that is a multiple of 16, got {size}")
        if settings.lived_at is not None and ("image" in kinds or envs.hints.commands is not None):
            raise ValueError(
                "hindsight moves observations that are numbers, and decisions that come into force "
                "later: images, and commands that end an episode at once, are learned as lived"
            )
        check_hindsight(settings, envs)

    def policy_of(self, weights: Any) -> CemPolicy:
        named = self.named(weights)
        return CemPolicy(
            {name: array for name, array in named.items() if not name.startswith("auxiliary")},
            dict(self._description),
        )

    def averaged_weights(self) -> NDArray[np.float32]:
        return np.array(self.state["acting" if self.settings.averaged else "online"])

    def about(self) -> dict[str, Any]:
        return {"search": self.policy.random}  # what the acting policy draws from

    def restore_about(self, about: dict[str, Any]) -> None:
        self.policy.random = about["search"]

    # --- Acting and remembering

    def gather(self, make_envs: Callable[[], LearnableEnvs], folder: Path | None) -> None:
        """Demonstrations, made in environments of their own or kept in `folder`."""
        path = None if folder is None else folder / DEMONSTRATIONS
        replay = self.new_replay(self.settings.demonstrations)
        envs = make_envs()
        if self.hindsight is not None:
            self.hindsight.tell(envs)
        self.demonstrations = demonstrations(envs, replay, self._run.seed, path)
        if isinstance(self.values, Unbounded):
            self.values = Unbounded(paid_in_a_second(self.demonstrations.fields))
        envs.close()

    def tidy(self, folder: Path) -> None:
        (folder / DEMONSTRATIONS).unlink(missing_ok=True)

    def prepare(self) -> None:
        """The auxiliary head, and updates on demonstrations, before the first action of its own."""
        self.learn_auxiliary(self.settings.auxiliary_updates)
        for _ in range(self.settings.offline_updates // self.at_once):
            self.dispatch(self.sample(self.at_once))
            self.sync(leave=1)

    def epsilon(self, steps: int) -> float:
        return float(self.settings.explore_share)

    def act(self, observation: Any, steps: int) -> tuple[NDArray[Any], Batch]:
        tell = self._envs.hints.auxiliary
        notes = {} if tell is None else {"auxiliary": tell()}
        s, commands = self.settings, self._envs.hints.commands
        action = self.policy(observation)
        tried = explored(action, self.space, commands, s.explore_sigma, s.explore_share, self.rng)
        return tried, notes

    def remember(self, step: Step) -> None:
        self.replay.add(step)

    def ready(self, steps: int) -> bool:
        return True

    def new_replay(self, capacity: int) -> Kept:
        """For so many transitions of `num_envs` environments."""
        hints = self._envs.hints
        if self.hindsight is not None:
            return RelabelledReplay(capacity, self._run.num_envs, self.hindsight)
        others: dict[str, Any] = {"action": ((self.space.size,), np.float32)}
        if hints.auxiliary_weights is not None:
            others["auxiliary"] = (hints.auxiliary_weights.shape, np.float32)
        return FrameReplay(
            capacity,
            self._run.num_envs,
            observed_kinds(self._envs),
            others,
            hints.longest_episode or 1,
            switch=self.settings.target == "concurrent",
        )

    # --- Batches

    def sample(self, updates: int) -> Batch:
        """A block of transitions, and which of them (updates, batch) each update is of."""
        assert self.demonstrations is not None
        share = self.settings.demonstration_share if len(self.replay) else 1.0
        sources = [(self.demonstrations, share), (self.replay, 1 - share)]
        sources = [source for source in sources if source[1] > 0]
        reuse, total = self.settings.label_reuse, updates * self.settings.batch_size
        count = -(-total // reuse)
        counts = [round(share * count) for _, share in sources]
        counts[-1] += count - sum(counts)
        parts = [r.sample(self.rng, c) for (r, _), c in zip(sources, counts, strict=True) if c]
        block = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        rounds = [self.rng.permutation(count) for _ in range(reuse)]
        index = np.concatenate(rounds)[:total].reshape(updates, self.settings.batch_size)
        return {**block, "index": index}

    # --- Labels: the Bellman updater

    def label(self, target: Any, lagged: Any, batch: dict[str, Any], key: Any) -> Any:
        """Targets (n,) of Q: the smaller value, by two networks, of the best next action.

        Full period: from one observation to the next. Concurrent: from the observation to the
        switch, where the new action is in flight (Eq. 8).
        """
        concurrent = self.settings.target == "concurrent"
        where = "switch" if concurrent else "next"
        state, image = batch[f"state_{where}"], batch.get(f"image_{where}")
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
        value = self.values.value(jnp.minimum(first, second))
        before, after = batch["reward_before_switch"], batch["reward_after_switch"]
        ended, gamma = batch["terminated"], self.settings.gamma_per_s
        if concurrent:
            y = concurrent_target(before, after, ended, value, gamma, batch["latency_s"])
        else:
            y = full_period_target(before + after, ended, value, gamma, batch["period_s"])
        return self.values.label(y)

    # --- Fitting: the trainer

    def fit(self, state: dict[str, Tree], batch: dict[str, Any]) -> tuple[Any, Any]:
        """One update on labelled transitions ("label"), with the "key" of what is random in it."""
        gradient, measured = self.gradient(state, batch)
        return self.stepped(state, gradient), measured

    def gradient(self, state: dict[str, Tree], batch: dict[str, Any]) -> tuple[Any, Any]:
        s = self.settings

        def loss(online: Tree) -> tuple[Any, dict[str, Any]]:
            network = self.network(online)
            image = self._augmented(batch, batch["key"])
            features, predicted = network.encode(batch["state_capture"], image)
            logits = network.score(features, batch["action"])
            q_loss = self.values.loss(logits, batch["label"])
            auxiliary = self._auxiliary_loss(predicted, batch)
            total = q_loss + s.auxiliary_weight * auxiliary
            told = {"q": self.values.told(logits).mean(), "label": batch["label"].mean()}
            return total, {**told, "auxiliary": auxiliary}

        (value, measured), gradient = jax.value_and_grad(loss, has_aux=True)(state["online"])
        return gradient, {"loss": value, **measured}

    def stepped(self, state: dict[str, Tree], gradient: Any) -> dict[str, Tree]:
        """A step down the gradient, and the three networks that follow."""
        s, state = self.settings, self.step_optimiser(state, gradient)
        online, updates = state["online"], state["updates"]
        target = optax.incremental_update(online, state["target"], s.target_tau)
        return {
            **state,
            "target": target,
            "lagged": jnp.where(updates % s.target_lag == 0, target, state["lagged"]),
            "acting": optax.incremental_update(online, state["acting"], s.acting_tau),
        }

    # --- Both, one after the other

    def dispatch(self, batches: Batch, lap: Lap | None = None) -> None:
        """Label a block, then fit the batches that `index` makes of it; return at once."""
        fitted, judged = self.divided(batches)
        state = self.state
        labels, key, fit_key = self.labelled(state["target"], state["lagged"], state["key"], judged)
        self.finish_piece(labels, "labelling", lap)
        self.fit_labelled(fitted, labels, key, fit_key)
        self.finish_piece(self._under_way[-1], "fitting", lap)

    def labelled(self, target: Any, lagged: Any, key: Any, judged: Batch) -> tuple[Any, Any, Any]:
        """Labels of a block by two vectors of weights; keys of the next block, of fitting this."""
        return self._label(target, lagged, key, judged)

    def fit_labelled(self, fitted: Batch, labels: Any, key: Any, fit_key: Any) -> None:
        """Start the updates on a labelled block; `key` is for the block after it."""
        index = fitted["index"]
        block = {name: array for name, array in fitted.items() if name != "index"}
        self.state, measured = self._update(
            {**self.state, "key": key}, {**block, "label": labels}, index, fit_key
        )
        self._under_way.append(measured)

    def _label_block(self, target: Tree, lagged: Tree, key: Any, batch: dict[str, Any]) -> Any:
        """Labels, and the keys that come after: of the next block, of fitting this one."""
        key, label_key, fit_key = jax.random.split(jax.random.wrap_key_data(key), 3)
        labels = self.label(self.network(target), self.network(lagged), batch, label_key)
        return labels, jax.random.key_data(key), jax.random.key_data(fit_key)

    def _fit_block(self, state: Any, block: dict[str, Any], index: Any, key: Any) -> Any:
        def one(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            rows, key = now
            batch = {name: array[rows] for name, array in block.items()}
            return self.fit(state, {**batch, "key": key})

        keys = jax.random.split(jax.random.wrap_key_data(key), len(index))
        state, measured = jax.lax.scan(one, state, (index, keys))
        measured["label"] = block["label"].mean()
        return state, {**measured, "policy": jnp.copy(state[self.acts_with])}

    # --- What is ours and not the paper's

    def learn_auxiliary(self, updates: int) -> None:
        """Teach the image's layers with the auxiliary head alone; all networks start from it."""
        if not self.has_auxiliary:
            return
        for _ in range(-(-updates // AUXILIARY_BLOCK)):
            self.fit_auxiliary(self.auxiliary_batch())
        self.start_from_online()

    @property
    def has_auxiliary(self) -> bool:
        return len(self._weights) > 0

    def auxiliary_batch(self) -> Batch:
        """Demonstrations for a block of updates of the auxiliary head."""
        assert self.demonstrations is not None
        batch = self.demonstrations.sample(self.rng, AUXILIARY_BLOCK * self.settings.batch_size)
        return {name: batch[name] for name in _FITTED if name != "action"}

    def fit_auxiliary(self, batch: Batch) -> None:
        """A block of updates of the auxiliary head; waits, because a block is large."""
        if self._alone_state is None:
            self._alone_state = self._alone.init(self.state["online"])
        self.state, self._alone_state = self._auxiliary_updates(
            self.state, self._alone_state, batch
        )
        self.wait()

    def start_from_online(self) -> None:
        """All networks become what the online one is: the auxiliary head has been taught."""
        online, self._alone_state = self.state["online"], None
        self.state |= {name: jnp.copy(online) for name in ("target", "lagged", "acting")}
        self.policy = self.policy_of(online)

    def _learn_auxiliary(self, state: Any, optimiser: Any, batch: dict[str, Any]) -> Any:
        def one(carry: Any, rows: dict[str, Any]) -> tuple[Any, None]:
            online, optimiser, key = carry
            key, now = jax.random.split(key)

            def loss(online: Tree) -> Any:
                image = self._augmented(rows, now)
                predicted = self.network(online).encode(rows["state_capture"], image)[1]
                return self._auxiliary_loss(predicted, rows)

            change, optimiser = self._alone.update(jax.grad(loss)(online), optimiser)
            return (optax.apply_updates(online, change), optimiser, key), None

        size = self.settings.batch_size
        batches = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), batch)
        key = jax.random.wrap_key_data(state["key"])
        (online, optimiser, key), _ = jax.lax.scan(one, (state["online"], optimiser, key), batches)
        return {**state, "online": online, "key": jax.random.key_data(key)}, optimiser

    def _auxiliary_loss(self, predicted: Any, batch: dict[str, Any]) -> Any:
        if predicted is None:
            return jnp.zeros(())
        return (self._weights * jnp.abs(predicted - batch["auxiliary"])).sum(axis=1).mean()

    def _augmented(self, batch: dict[str, Any], key: Any) -> Any:
        image = batch.get("image_capture")
        if image is None:
            return None
        shift_key, colour_key = jax.random.split(key)
        if self.settings.shift:
            image = shifted(image, shift_key, self.settings.shift, self.shard)
        if self.settings.colour:
            image = tinted(image, colour_key, self.settings.colour, self.shard)
        return image

    # --- Spread over machines (`scale/`)

    @property
    def labels_each(self) -> float:
        return float(self.settings.batch_size / self.settings.label_reuse)

    @property
    def blocks_before(self) -> tuple[int, int]:
        s = self.settings
        auxiliary = -(-s.auxiliary_updates // AUXILIARY_BLOCK) if self.has_auxiliary else 0
        return auxiliary, s.offline_updates // self.at_once

    @property
    def can_sample(self) -> bool:
        return True  # demonstrations are always there

    def act_apart(self, seeds: Sequence[int]) -> None:
        self.policy.random = np.random.default_rng(seeds).bit_generator.state

    def divided(self, batches: Batch) -> tuple[Batch, Batch]:
        """Transitions as what is fitted, with their `index`, and what labels are made from."""
        fitted = {name: array for name, array in batches.items() if name in (*_FITTED, "index")}
        return fitted, {name: array for name, array in batches.items() if name not in fitted}

    def shards(self, fitted: Batch, count: int) -> list[Batch]:
        """Each has only the transitions that it fits; `used` says which labels these have."""
        found = []
        for index in np.split(fitted["index"], count, axis=1):
            used, own = np.unique(index, return_inverse=True)
            part = {name: array[used] for name, array in fitted.items() if name != "index"}
            found.append({**part, "index": own.reshape(index.shape), "used": used})
        return found

    def labels_with(self) -> dict[str, NDArray[np.float32]]:
        return {name: np.array(self.state[name]) for name in ("target", "lagged")}

    def labels(self, weights: Any, key: Any, judged: Batch) -> tuple[Any, Any]:
        labels, _, fit_key = self.labelled(weights["target"], weights["lagged"], key, judged)
        return np.asarray(labels), np.asarray(fit_key)

    def next_key(self, key: Any) -> NDArray[np.uint32]:
        """As `_label_block` splits it."""
        following = jax.random.split(jax.random.wrap_key_data(key), 3)[0]
        return np.asarray(jax.random.key_data(following))

    def batches_of(self, part: Batch, labels: Any, key: Any, fit_key: Any) -> list[Any]:
        index = part["index"]
        self.state = {**self.state, "key": jnp.asarray(key)}
        keys = jax.random.split(jax.random.wrap_key_data(fit_key), len(index))
        block = {name: array for name, array in part.items() if name not in ("index", "used")}
        block["label"] = labels[part["used"]]
        return [
            {**{name: array[rows] for name, array in block.items()}, "key": now}
            for rows, now in zip(index, keys, strict=True)
        ]
