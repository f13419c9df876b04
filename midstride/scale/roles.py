"""The roles of a training that is spread over machines. No algorithm is here.

Each is a plain class around pieces that a local training has too: an agent acts (`Collector`),
remembers and samples (`Memory`), labels (`Updater`), fits (`Fitter`); a policy is evaluated
(`Judge`). They know neither Ray nor each other: the coordinator calls them and passes on what they
return. `setup` does what takes long, so that whatever is wrong comes back as an error of a call.

Methods return a small record first, which the coordinator reads, then data, which it only passes
on: rounds to a memory, halves of a block to an updater and to the fitter, weights to all.

`random`: in lock step the one generator of a local training is handed from role to role, as its
state; otherwise it is None, and every role draws from a generator of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midstride.disk.files import versions
from midstride.envs.vector import Step, interact
from midstride.learn.agent import Agent, Batch, configure_jax
from midstride.learn.agents import Training, agent_called
from midstride.learn.shard import InStep, Shard
from midstride.learn.trainer import LOGGED, final_episodes, in_evaluation, lived_envs
from midstride.measure.evaluate import Episode, evaluate_in

Record = dict[str, Any]  # small: the coordinator reads it
Weights = NDArray[np.float32]
State = dict[str, Any]  # of a random generator


def small_agent(training: Training) -> tuple[Agent, Any]:
    """An agent that learns or computes elsewhere than its environments are, and one of these."""
    configure_jax()
    envs = training.lived.small().make(1, observe_switch=training.agent.observes_switch)
    return forgetful(training, envs, np.random.default_rng(training.run.seed)), envs


def forgetful(training: Training, envs: Any, rng: np.random.Generator) -> Agent:
    """An agent for which others remember."""
    few = training.with_(replay_size=max(2, training.agent.begins_after))
    kind: Any = agent_called(training.agent.agent)
    agent: Agent = kind(few.agent, few.run, envs, rng)
    return agent


def drawing(agent: Agent, random: State | None) -> None:
    """Have an agent draw from where another role stopped."""
    if random is not None:
        agent.rng.bit_generator.state = random


class Collector:
    """Environments, and the latest policy in them.

    seeds: words that everything random here is made from; the first two are those of a local
        training: its seed, and the steps that were taken before
    """

    def __init__(self, training: Training, seeds: Sequence[int]) -> None:
        self.training, self.seeds = training, tuple(seeds)

    def setup(self) -> Record:
        configure_jax()
        envs = lived_envs(self.training)
        self.agent = forgetful(self.training, envs, np.random.default_rng([*self.seeds, 1]))
        seed = int(np.random.default_rng(self.seeds).integers(2**31))
        if len(self.seeds) > 2:  # the first draws as a local training does
            self.agent.act_apart(self.seeds)
        self.totals = np.zeros(envs.num_envs)
        self.taken = 0  # rounds
        self.steps = 0  # of all collectors, when the call came
        self._rounds = interact(envs, self._act, seed, self.agent.policy.reset)
        return {"versions": versions()}

    def _act(self, observation: Any) -> Any:
        return self.agent.act(observation, self.steps)

    def collect(
        self, weights: Weights, seen: Any, rounds: int, steps: int, random: State | None
    ) -> tuple[Record, list[Step]]:
        """Rounds of steps with these weights, and what a policy must know of what was seen."""
        drawing(self.agent, random)
        self.agent.see_with(seen)
        self.agent.act_with(weights)
        self.steps = steps
        taken, returns = list(itertools.islice(self._rounds, rounds)), []
        for step in taken:
            self.totals += step.reward
            for i in np.flatnonzero(step.done):
                returns.append(float(self.totals[i]))
                self.totals[i] = 0
        first, self.taken = self.taken, self.taken + rounds
        drawn = self.agent.rng.bit_generator.state
        return {"first": first, "returns": returns, "random": drawn}, taken


class Memory:
    """Demonstrations, and what some collectors sent: a shard of the replay.

    streams: names of the collectors' places that send to this one
    capacity: transitions of each stream
    arrays: what it held at a checkpoint
    """

    def __init__(
        self,
        training: Training,
        streams: Sequence[int],
        capacity: int,
        seeds: Sequence[int],
        arrays: Held | None = None,
    ) -> None:
        self.training, self.names, self.capacity = training, tuple(streams), capacity
        self.seeds, self.before = tuple(seeds), arrays or Held({}, {})

    def setup(self) -> Record:
        """Demonstrations depend on environment and seed alone: whoever is replaced makes them anew.

        Only the first shard says what values are worth (`Values`), to all.
        """
        self.agent, envs = small_agent(self.training)
        envs.close()
        self.agent.rng = np.random.default_rng(self.seeds)
        self.agent.gather(lambda: lived_envs(self.training), None)
        by_name = {name: self.agent.new_replay(self.capacity) for name in self.names}
        for name, arrays in self.before.streams.items():
            by_name[name].restore(arrays)
        self.agent.replay = self.streams = Streams(by_name, self.agent.notice)
        self.agent.restore_noticed(self.before.noticed)
        self.before = Held({}, {})
        return {"versions": versions(), "values": self.agent.values, **self._told()}

    def _told(self) -> Record:
        """What the coordinator wants to know of a memory at all times."""
        agent = self.agent
        return {"held": len(self.streams), "can_sample": agent.can_sample, "seen": agent.seen()}

    def add(self, name: int, owner: int, first: int, steps: Sequence[Step]) -> Record:
        """Keep rounds of a collector, once: see `Streams.add`."""
        return {"added": self.streams.add(name, owner, first, steps), **self._told()}

    def sample(self, updates: int, random: State | None, fitters: int = 1) -> tuple[Any, ...]:
        """A block: a record, what labels are made from, and a part for each fitter."""
        drawing(self.agent, random)
        fitted, judged = self.agent.divided(self.agent.sample(updates))
        parts = [fitted] if fitters == 1 else self.agent.shards(fitted, fitters)
        record = {"random": self.agent.rng.bit_generator.state, "seen": self.agent.seen()}
        return record, judged, *parts

    def auxiliary(self, random: State | None) -> tuple[Record, Batch]:
        """A block for the auxiliary head; it needs no labels."""
        drawing(self.agent, random)
        batch = self.agent.auxiliary_batch()
        return {"random": self.agent.rng.bit_generator.state}, batch

    def arrays(self) -> Held:
        """What is held, for a checkpoint."""
        streams = {name: stream.arrays() for name, stream in self.streams.by_name.items()}
        return Held(streams, self.agent.noticed())


class Held(NamedTuple):
    """What a memory holds, for a checkpoint: by collector, and what was noticed of all."""

    streams: dict[int, Batch]
    noticed: Batch


class Streams:
    """What collectors sent, each in a replay of its own: a step follows the one before it there.

    Rounds are numbered by the collector that took them. A round that is here already (it was sent
    again, because nobody heard that it had arrived) is not added again.
    """

    def __init__(
        self, by_name: dict[int, Any], notice: Callable[[Any], None] = lambda step: None
    ) -> None:
        """by_name: an empty replay of each; notice: is told every step that is kept"""
        self.by_name, self._notice = by_name, notice
        self._last: dict[int, tuple[int, int]] = {}  # stream -> owner and round, of the latest
        self._seen: dict[int, int] = {}  # owner -> its latest round

    def __len__(self) -> int:
        return sum(len(stream) for stream in self.by_name.values())

    def add(self, name: int, owner: int, first: int, steps: Sequence[Step]) -> int:
        """Rounds `first`, `first` + 1, ... of a collector; how many were new."""
        stream, added = self.by_name[name], 0
        for number, step in enumerate(steps, start=first):
            if number <= self._seen.get(owner, -1):
                continue
            if name in self._last and self._last[name] != (owner, number - 1):
                stream.cut()  # others' episodes
            stream.add(step)
            self._notice(step)
            self._last[name], self._seen[owner] = (owner, number), number
            added += 1
        return added

    def sample(self, rng: np.random.Generator, count: int) -> Batch:
        """Random transitions, from every stream in proportion to what it holds."""
        held = [stream for stream in self.by_name.values() if len(stream)]
        if len(held) == 1:
            found: Batch = held[0].sample(rng, count)
            return found
        sizes = np.array([len(stream) for stream in held], float)
        counts = rng.multinomial(count, sizes / sizes.sum())
        parts = [s.sample(rng, int(c)) for s, c in zip(held, counts, strict=True) if c]
        order = rng.permutation(count)  # whoever makes batches of them has some of each in all
        return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


class Updater:
    """The Bellman updater: labels by the networks that label."""

    def __init__(self, training: Training, values: Any) -> None:
        self.training, self.values = training, values

    def setup(self) -> Record:
        self.agent, envs = small_agent(self.training)
        envs.close()
        self.agent.values = self.values
        return {"versions": versions()}

    def label(self, judged: Batch, weights: dict[str, Weights], key: Any) -> tuple[Record, Any]:
        labels, fit_key = self.agent.labels(weights, key, judged)
        return {"fit_key": fit_key}, labels


Update = tuple[Record, Weights, dict[str, Weights]]


class Fitter:
    """Gradient steps on labelled blocks; publishes what others act and label with.

    place, fitters: which of how many that are in step (`team.py`); one fits blocks as a whole
    """

    def __init__(self, training: Training, values: Any, place: int = 0, fitters: int = 1) -> None:
        self.training, self.values = training, values
        self.place, self.fitters = place, fitters

    def setup(self) -> Record:
        self.agent, envs = small_agent(self.training)
        envs.close()
        self.agent.values = self.values
        if self.fitters > 1:
            self.in_step = InStep(self.agent, Shard(self.place, self.fitters))
        return {"versions": versions()}

    def restore(self, state: Sequence[NDArray[Any]]) -> Record:
        """Go on from what `state` gave, of this fitter or of another."""
        self.agent.restore_state(state)
        return {}

    def publish(self) -> Update:
        """The weights as they are."""
        return self._published({})

    def fit(self, fitted: Batch, labels: Any, key: Any, fit_key: Any) -> Update:
        """The updates of a block; an error if a loss or a weight is no finite number."""
        self.agent.fit_labelled(fitted, labels, key, fit_key)
        found = self.agent.sync()
        assert found is not None
        return self._published({"measured": _means(found)})

    def begin(self, part: Batch, labels: Any, key: Any, fit_key: Any) -> tuple[Record, Weights]:
        """The gradient of the first update of a block, of which this is the fitter's part."""
        return {}, self.in_step.begin(part, labels, key, fit_key)

    def step(self, *gradients: Weights) -> tuple[Record, Weights]:
        """An update with everybody's gradients; the gradient of the next."""
        return {}, self.in_step.step(gradients)

    def end(self, *gradients: Weights) -> tuple[Record, Weights | None, dict[str, Weights]]:
        """The last update of a block; the first fitter publishes for all."""
        measured = _means(self.in_step.end(gradients))
        if self.place:
            return {"measured": measured}, None, {}
        return self._published({"measured": measured})

    def fit_auxiliary(self, batch: Batch) -> Record:
        self.agent.fit_auxiliary(batch)
        return {}

    def start_from_online(self) -> Update:
        self.agent.start_from_online()
        return self._published({})

    def averaged(self) -> Weights:
        """Weights to be evaluated."""
        return self.agent.averaged_weights()

    def state(self) -> tuple[int, list[NDArray[Any]]]:
        """Updates done, and everything that is learned: to go on from."""
        return int(self.agent.state["updates"]), self.agent.state_arrays()

    def _published(self, record: Record) -> Update:
        agent, state = self.agent, self.agent.state
        key = np.asarray(state["key"]) if "key" in state else None
        said = {"updates": int(state["updates"]), "key": key, **record}
        return said, np.array(state[agent.acts_with]), agent.labels_with()


def _means(measured: dict[str, NDArray[Any]]) -> dict[str, float]:
    return {name: float(measured[name].mean()) for name in LOGGED & measured.keys()}


class Judge:
    """Evaluates policies."""

    def __init__(self, training: Training) -> None:
        self.training = training

    def setup(self) -> Record:
        self.agent, envs = small_agent(self.training)
        envs.close()
        return {"versions": versions()}

    def _policy(self, weights: Weights, seen: Any) -> Any:
        self.agent.see_with(seen)
        return self.agent.policy_of(weights)

    def evaluate(self, weights: Weights, seen: Any, steps: int) -> list[Episode]:
        """The episodes that a training is watched by."""
        policy, training = self._policy(weights, seen), self.training
        with in_evaluation(steps):
            return evaluate_in(policy, training.environment, training.run.evaluation_episodes)

    def last(self, weights: Weights, seen: Any, steps: int) -> list[Episode]:
        """The episodes that a training is judged by."""
        policy, training = self._policy(weights, seen), self.training
        with in_evaluation(steps):
            return final_episodes(policy, training.environment, training.run)


ROLES: dict[str, type] = {
    "collector": Collector,
    "memory": Memory,
    "updater": Updater,
    "fitter": Fitter,
    "judge": Judge,
}


def shares(count: int, names: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Names dealt out in turn to `count` shards."""
    for shard in range(count):
        yield tuple(names[shard::count])
