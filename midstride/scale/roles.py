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
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.disk.files import versions
from midstride.envs.vector import Step, interact
from midstride.learn.agent import Batch, configure_jax
from midstride.learn.agents import Training
from midstride.learn.demonstrations import Kept
from midstride.learn.qtopt import QTOpt, divided
from midstride.learn.trainer import LOGGED, final_episodes, in_evaluation, lived_envs
from midstride.learn.values import Values
from midstride.measure.evaluate import Episode, evaluate_in

Record = dict[str, Any]  # small: the coordinator reads it
Weights = NDArray[np.float32]
State = dict[str, Any]  # of a random generator


def small_agent(training: Training) -> tuple[QTOpt, Any]:
    """An agent that learns or computes elsewhere than its environments are, and one of these."""
    configure_jax()
    envs = training.lived.small().make(1, observe_switch=training.agent.observes_switch)
    few = training.with_(replay_size=2)  # what it remembers is elsewhere
    agent = QTOpt(few.agent, few.run, envs, np.random.default_rng(training.run.seed))
    return agent, envs


def drawing(agent: QTOpt, random: State | None) -> None:
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
        few = self.training.with_(replay_size=2)
        rng = np.random.default_rng(self.seeds)
        self.agent = QTOpt(few.agent, few.run, envs, np.random.default_rng([*self.seeds, 1]))
        seed = int(rng.integers(2**31))
        if len(self.seeds) > 2:  # the first draws as a local training does
            self.agent.policy.random = np.random.default_rng(self.seeds).bit_generator.state
        self.totals = np.zeros(envs.num_envs)
        self.taken = 0  # rounds
        self.steps = 0  # of all collectors, when the call came
        self._rounds = interact(envs, self._act, seed, self.agent.policy.reset)
        return {"versions": versions()}

    def _act(self, observation: Any) -> Any:
        return self.agent.act(observation, self.steps)

    def collect(
        self, weights: Weights, rounds: int, steps: int, random: State | None
    ) -> tuple[Record, list[Step]]:
        """Rounds of steps with these weights."""
        drawing(self.agent, random)
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
        arrays: dict[int, Batch] | None = None,
    ) -> None:
        self.training, self.names, self.capacity = training, tuple(streams), capacity
        self.seeds, self.arrays_before = tuple(seeds), arrays or {}

    def setup(self) -> Record:
        """Demonstrations depend on environment and seed alone: whoever is replaced makes them anew.

        Only the first shard says what values are worth (`Values`), to all.
        """
        self.agent, envs = small_agent(self.training)
        envs.close()
        self.agent.rng = np.random.default_rng(self.seeds)
        self.agent.gather(lambda: lived_envs(self.training), None)
        make = self.agent.new_replay
        self.streams = Streams({name: make(self.capacity) for name in self.names})
        self.agent.replay = self.streams  # type: ignore[assignment]
        for name, arrays in self.arrays_before.items():
            self.streams.by_name[name].restore(arrays)
        self.arrays_before = {}
        return {"versions": versions(), "values": self.agent.values, "held": len(self.streams)}

    def add(self, name: int, owner: int, first: int, steps: Sequence[Step]) -> Record:
        """Keep rounds of a collector, once: see `Streams.add`."""
        added = self.streams.add(name, owner, first, steps)
        return {"added": added, "held": len(self.streams)}

    def sample(self, updates: int, random: State | None) -> tuple[Record, Batch, Batch]:
        """A block: what is fitted, and what labels are made from."""
        drawing(self.agent, random)
        fitted, judged = divided(self.agent.sample(updates))
        return {"random": self.agent.rng.bit_generator.state}, fitted, judged

    def auxiliary(self, random: State | None) -> tuple[Record, Batch, Batch]:
        """A block for the auxiliary head; it needs no labels."""
        drawing(self.agent, random)
        batch = self.agent.auxiliary_batch()
        return {"random": self.agent.rng.bit_generator.state}, batch, {}

    def arrays(self) -> dict[int, Batch]:
        """What is held, for a checkpoint."""
        return {name: stream.arrays() for name, stream in self.streams.by_name.items()}


class Streams:
    """What collectors sent, each in a replay of its own: a step follows the one before it there.

    Rounds are numbered by the collector that took them. A round that is here already (it was sent
    again, because nobody heard that it had arrived) is not added again.
    """

    def __init__(self, by_name: dict[int, Kept]) -> None:
        self.by_name = by_name
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
            self._last[name], self._seen[owner] = (owner, number), number
            added += 1
        return added

    def sample(self, rng: np.random.Generator, count: int) -> Batch:
        """Random transitions, from every stream in proportion to what it holds."""
        held = [stream for stream in self.by_name.values() if len(stream)]
        if len(held) == 1:
            return held[0].sample(rng, count)
        sizes = np.array([len(stream) for stream in held], float)
        counts = rng.multinomial(count, sizes / sizes.sum())
        parts = [s.sample(rng, int(c)) for s, c in zip(held, counts, strict=True) if c]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class Updater:
    """The Bellman updater: labels by the cross-entropy method on two target networks."""

    def __init__(self, training: Training, values: Values) -> None:
        self.training, self.values = training, values

    def setup(self) -> Record:
        self.agent, envs = small_agent(self.training)
        envs.close()
        self.agent.values = self.values
        return {"versions": versions()}

    def label(self, judged: Batch, weights: dict[str, Weights], key: Any) -> tuple[Record, Any]:
        target, lagged = weights["target"], weights["lagged"]
        labels, _, fit_key = self.agent.labelled(target, lagged, key, judged)
        return {"fit_key": np.asarray(fit_key)}, np.asarray(labels)


class Fitter:
    """Gradient steps on labelled blocks; publishes what others act and label with.

    state: the leaves of an agent's state, to go on from
    """

    def __init__(
        self, training: Training, values: Values, state: Sequence[NDArray[Any]] | None = None
    ) -> None:
        self.training, self.values, self.state_before = training, values, state

    def setup(self) -> tuple[Record, Weights, dict[str, Weights]]:
        self.agent, envs = small_agent(self.training)
        envs.close()
        self.agent.values = self.values
        if self.state_before is not None:
            self.agent.restore_state(self.state_before)
        return self._published({"versions": versions()})

    def publish(self) -> tuple[Record, Weights, dict[str, Weights]]:
        """The weights as they are, once more."""
        return self._published({})

    def fit(
        self, fitted: Batch, labels: Any, key: Any, fit_key: Any
    ) -> tuple[Record, Weights, dict[str, Weights]]:
        """The updates of a block; an error if a loss or a weight is no finite number."""
        self.agent.fit_labelled(fitted, labels, key, fit_key)
        found = self.agent.sync()
        assert found is not None
        measured = {name: float(found[name].mean()) for name in LOGGED & found.keys()}
        return self._published({"measured": measured})

    def fit_auxiliary(self, batch: Batch) -> Record:
        self.agent.fit_auxiliary(batch)
        return {}

    def start_from_online(self) -> tuple[Record, Weights, dict[str, Weights]]:
        self.agent.start_from_online()
        return self._published({})

    def averaged(self) -> Weights:
        """Weights to be evaluated."""
        return self.agent.averaged_weights()

    def state(self) -> tuple[int, list[NDArray[Any]]]:
        """Updates done, and everything that is learned: to go on from."""
        return int(self.agent.state["updates"]), self.agent.state_arrays()

    def _published(self, record: Record) -> tuple[Record, Weights, dict[str, Weights]]:
        state = self.agent.state
        said = {"updates": int(state["updates"]), "key": np.asarray(state["key"]), **record}
        judging = {name: np.array(state[name]) for name in ("target", "lagged")}
        return said, np.array(state[self.agent.acts_with]), judging


class Judge:
    """Evaluates policies."""

    def __init__(self, training: Training) -> None:
        self.training = training

    def setup(self) -> Record:
        self.agent, envs = small_agent(self.training)
        envs.close()
        return {"versions": versions()}

    def evaluate(self, weights: Weights, steps: int) -> list[Episode]:
        """The episodes that a training is watched by."""
        policy, training = self.agent.policy_of(weights), self.training
        with in_evaluation(steps):
            return evaluate_in(policy, training.environment, training.run.evaluation_episodes)

    def last(self, weights: Weights, steps: int) -> list[Episode]:
        """The episodes that a training is judged by."""
        policy, training = self.agent.policy_of(weights), self.training
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
