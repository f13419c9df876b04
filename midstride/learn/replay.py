"""Replay: what happened, in order, in many environments at once.

A ring of time steps, each of all environments, so that n-step returns and segments for a recurrent
network are slices along time. A transition is one row of float32: sampling is a single gather, and
a batch goes to the learner as a single array, which is taken apart (`unpack`) in compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Batch = dict[str, NDArray[Any]]

VECTORS = ("observation", "next_observation", "observation_at_switch")
SCALARS = ("action", "reward_before", "reward_after", "latency_share", "terminated", "done")


def places(columns: int) -> dict[str, Any]:
    """Where each field of a transition is in its row."""
    at: dict[str, Any] = {
        name: slice(i * columns, (i + 1) * columns) for i, name in enumerate(VECTORS)
    }
    return at | {name: len(VECTORS) * columns + i for i, name in enumerate(SCALARS)}


def unpack(rows: Any) -> dict[str, Any]:
    """The fields of transitions (..., width), NumPy or JAX."""
    columns = (rows.shape[-1] - len(SCALARS)) // len(VECTORS)
    fields = {name: rows[..., at] for name, at in places(columns).items()}
    return fields | {
        "action": fields["action"].astype(np.int32),
        "terminated": fields["terminated"] > 0,
        "done": fields["done"] > 0,
    }


class Replay:
    """The last `capacity` transitions of `num_envs` environments.

    Fields of a step, each (environments, ...): observation, action, reward_before, reward_after,
    next_observation (the true one, before any autoreset), terminated, done (either way),
    observation_at_switch, latency_share (t_AS / H), and h, c (recurrent state before the step).
    """

    def __init__(self, capacity: int, num_envs: int, columns: int, lstm_size: int = 0) -> None:
        self.length = max(1, capacity // num_envs)
        self.num_envs = num_envs
        width = len(VECTORS) * columns + len(SCALARS)
        self._places = places(columns)
        self.data: Batch = {"transitions": np.zeros((self.length, num_envs, width), np.float32)}
        for name in ("h", "c") if lstm_size else ():
            self.data[name] = np.zeros((self.length, num_envs, lstm_size), np.float32)
        self.added = 0  # time steps ever added

    def __len__(self) -> int:
        """Transitions held."""
        return min(self.added, self.length) * self.num_envs

    def add(self, step: Batch) -> None:
        """Append a time step: every field, (environments, ...)."""
        at = self.added % self.length
        row = self.data["transitions"][at]
        for name, place in self._places.items():
            row[:, place] = step[name]
        for name in self.data.keys() - {"transitions"}:
            self.data[name][at] = step[name]
        self.added += 1

    def arrays(self) -> Batch:
        """What is held, for a checkpoint."""
        held = min(self.added, self.length)
        return {name: array[:held] for name, array in self.data.items()}

    def restore(self, arrays: Batch, added: int) -> None:
        for name, array in arrays.items():
            self.data[name][: len(array)] = array
        self.added = added

    def rows(self, rng: np.random.Generator, count: int, span: int) -> tuple[Any, Any]:
        """Random starts (row, environment) of `span` time steps that are all still held."""
        held = min(self.added, self.length)
        if held < span:
            raise ValueError(f"cannot sample {span} steps in a row from {held}")
        oldest = self.added - held
        times = oldest + rng.integers(held - span + 1, size=count)
        return times % self.length, rng.integers(self.num_envs, size=count)

    def gather(self, rows: Any, envs: Any, n_step: int, gamma: float) -> Batch:
        """Transitions at given places: rows for `unpack`, of the shape of `rows`.

        With n-step returns, `reward_before` is the sum of up to n rewards, stopping where an
        episode ends, `reward_after` is 0, and the next observation and `terminated` are those of
        the last one; `bootstrap_discount` is gamma to the number summed.
        """
        found = self._take(rows, envs)
        if n_step == 1:
            return {"transitions": found}
        at = self._places
        last = unpack(found)
        reward = last["reward_before"] + last["reward_after"]
        discount = np.full(reward.shape, gamma, np.float32)
        for k in range(1, n_step):
            over = last["done"]
            following = unpack(self._take((rows + k) % self.length, envs))
            more = following["reward_before"] + following["reward_after"]
            reward = np.where(over, reward, reward + discount * more)
            discount = np.where(over, discount, discount * np.float32(gamma))
            for name in ("next_observation", "terminated", "done"):
                ended = over[..., None] if name == "next_observation" else over
                last[name] = np.where(ended, last[name], following[name])
        found[..., at["reward_before"]], found[..., at["reward_after"]] = reward, 0
        for name in ("next_observation", "terminated"):
            found[..., at[name]] = last[name]
        return {"transitions": found, "bootstrap_discount": discount}

    def segments(self, rng: np.random.Generator, shape: tuple[int, ...], span: int) -> Batch:
        """Random segments: transitions (*shape, span, width); h, c of the first step."""
        rows, envs = (index.reshape(shape) for index in self.rows(rng, int(np.prod(shape)), span))
        steps = (rows[..., None] + np.arange(span)) % self.length
        return {
            "transitions": self._take(steps, envs[..., None]),
            "h": self.data["h"][rows, envs],
            "c": self.data["c"][rows, envs],
        }

    def _take(self, rows: Any, envs: Any) -> NDArray[np.float32]:
        transitions = self.data["transitions"]
        flat = transitions.reshape(-1, transitions.shape[-1])
        return flat.take(rows * self.num_envs + envs, axis=0)


class Experience:
    """The last `capacity` transitions of `num_envs` environments, with large observations.

    An observation is kept once: what follows a step is the observation of the next one. Only where
    an episode was cut off (done, not terminated) its last observation is kept aside.

    fields: name -> (shape, dtype) of everything that is kept of a step, beside terminated and done
    observed: those that make up an observation
    longest: steps of the longest episode; no other is cut off, but at the seams (`cut`)
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        fields: Mapping[str, tuple[tuple[int, ...], Any]],
        observed: Sequence[str],
        longest: int,
    ) -> None:
        self.length = max(2, capacity // num_envs)
        self.num_envs = num_envs
        self.observed = tuple(observed)
        shape = (self.length, num_envs)
        self.data: Batch = {n: np.zeros((*shape, *s), d) for n, (s, d) in fields.items()}
        self.data |= {n: np.zeros(shape, bool) for n in ("terminated", "done")}
        self.data["cut_off"] = np.full(shape, -1, np.int32)  # where its last observation is
        room = (self.length // longest + 8) * num_envs
        for name in self.observed:
            array = self.data[name]
            self.data[f"last_{name}"] = np.zeros((room, *array.shape[2:]), array.dtype)
        for name in self.observed:  # what follows the newest step
            self.data[f"after_{name}"] = np.zeros((num_envs, *self.data[name].shape[2:]),
                                                  self.data[name].dtype)  # fmt: skip
        self.added = 0  # time steps ever added
        self.cut_offs = 0  # episodes ever cut off

    def __len__(self) -> int:
        """Transitions that can be sampled: the newest have no successor yet."""
        return max(0, min(self.added, self.length) - 1) * self.num_envs

    def add(self, step: Batch) -> None:
        """Append a time step: every field, and next_NAME of what is observed."""
        at = self.added % self.length
        for name, array in self.data.items():
            if name in step:
                array[at] = step[name]
        self.data["cut_off"][at] = -1
        for name in self.observed:
            self.data[f"after_{name}"][:] = step[f"next_{name}"]
        self.added += 1
        self._keep_aside(np.flatnonzero(step["done"] & ~step["terminated"]))

    def cut(self) -> None:
        """What is added next does not follow what was added last: other episodes begin."""
        if self.added:
            self._keep_aside(np.flatnonzero(~self.data["done"][(self.added - 1) % self.length]))

    def _keep_aside(self, ids: NDArray[np.integer]) -> None:
        """Keep what follows the newest step of environments `ids`."""
        room = len(self.data[f"last_{self.observed[0]}"])
        places = (self.cut_offs + np.arange(len(ids))) % room
        self.data["cut_off"][(self.added - 1) % self.length, ids] = places
        for name in self.observed:
            self.data[f"last_{name}"][places] = self.data[f"after_{name}"][ids]
        self.cut_offs += len(ids)

    def arrays(self) -> Batch:
        """What is held, for a checkpoint."""
        held = min(self.added, self.length)
        sizes = {"last": self.cut_offs, "after": self.num_envs}
        found = {
            name: array[: sizes.get(name.partition("_")[0], held)]
            for name, array in self.data.items()
        }
        return {**found, "cut_offs": np.array([self.cut_offs])}

    def restore(self, arrays: Batch, added: int) -> None:
        """Go on with what was held; the environments have begun other episodes."""
        for name, array in arrays.items():
            if name != "cut_offs":
                self.data[name][: len(array)] = array
        self.added, self.cut_offs = added, int(arrays["cut_offs"][0])
        self.cut()

    def sample(self, rng: np.random.Generator, count: int) -> Batch:
        """Random transitions: every field, and next_NAME of what is observed.

        After a termination the next observation is that of another episode: do not use it.
        """
        held = min(self.added, self.length)
        if held < 2:
            raise ValueError("cannot sample before two time steps were added")
        times = self.added - held + rng.integers(held - 1, size=count)
        envs = rng.integers(self.num_envs, size=count)
        rows, following = times % self.length, (times + 1) % self.length
        kept = {n for n in self.data if not n.startswith(("last_", "after_")) and n != "cut_off"}
        found = {name: self.data[name][rows, envs] for name in kept}
        cut_off = self.data["cut_off"][rows, envs]
        elsewhere = np.flatnonzero(cut_off >= 0)
        for name in self.observed:
            found[f"next_{name}"] = self.data[name][following, envs]
            found[f"next_{name}"][elsewhere] = self.data[f"last_{name}"][cut_off[elsewhere]]
        return found


class Priorities:
    """A sum tree over the places of a replay: sampling in proportion to priority, in C speed.

    Proportional prioritisation (Schaul et al., 2016): priority = |error|^alpha, corrected by
    importance weights to the power beta. New transitions get the largest priority so far.
    """

    def __init__(self, size: int, alpha: float = 0.6, beta: float = 0.4) -> None:
        self.leaves = 1 << max(1, (size - 1).bit_length())
        self.tree = np.zeros(2 * self.leaves)
        self.alpha, self.beta, self.largest = alpha, beta, 1.0

    def set_new(self, places: NDArray[np.integer]) -> None:
        self._set(places, np.full(len(places), self.largest))

    def update(self, places: NDArray[np.integer], errors: NDArray[Any]) -> None:
        priorities = (np.abs(errors) + 1e-6) ** self.alpha
        self.largest = max(self.largest, float(priorities.max()))
        self._set(places, priorities)

    def _set(self, places: NDArray[np.integer], priorities: NDArray[Any]) -> None:
        node = places + self.leaves
        self.tree[node] = priorities
        node = np.unique(node // 2)
        while node[0] >= 1:
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]
            node = np.unique(node // 2)

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Any, Any]:
        """Places (count,) and their importance weights, the largest of which is 1."""
        mass = rng.random(count) * self.tree[1]
        node = np.ones(count, np.intp)
        while node[0] < self.leaves:
            left = self.tree[2 * node]
            right = mass >= left
            mass = np.where(right, mass - left, mass)
            node = 2 * node + right
        weights = np.maximum(self.tree[node], 1e-12) ** -self.beta
        return node - self.leaves, (weights / weights.max()).astype(np.float32)
