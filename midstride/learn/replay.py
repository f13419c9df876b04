"""Replay: what happened, in order, in many environments at once.

A ring of time steps, each of all environments, so that n-step returns and segments for a recurrent
network are slices along time. A transition is one row of float32: sampling is a single gather, and
a batch goes to the learner as a single array, which is taken apart (`Row.unpack`) in compiled code.
Fields have the names of `Step`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.envs.vector import Step

Batch = dict[str, NDArray[Any]]

SCALARS = (
    "reward_before_switch", "reward_after_switch", "latency_s", "period_s", "terminated",
    "truncated",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Where each field of a transition stands in its row."""

    columns: int  # of an observation
    switch: bool  # whether the observation at the switch is kept
    actions: int = 0  # columns of a continuous action; 0: an action is a whole number
    within: int = 0  # instants inside of the period that are kept too, for `relabel.py`
    within_columns: int = 0  # of what is observed at each

    @property
    def observations(self) -> tuple[str, ...]:
        names = ("observation_capture", "observation_next", "observation_switch")
        return names if self.switch else names[:2]

    @property
    def places(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            name: slice(i * self.columns, (i + 1) * self.columns)
            for i, name in enumerate(self.observations)
        }
        first = len(self.observations) * self.columns
        found["action"] = slice(first, first + self.actions) if self.actions else first
        first += max(1, self.actions)
        found |= {name: first + i for i, name in enumerate(SCALARS)}
        if self.within:
            first += len(SCALARS)
            last = first + self.within * self.within_columns
            found["observation_within"] = slice(first, last)
            found["reward_within"] = slice(last, last + self.within)
        return found

    @property
    def width(self) -> int:
        plain = len(self.observations) * self.columns + max(1, self.actions) + len(SCALARS)
        return plain + self.within * (self.within_columns + 1)

    def unpack(self, rows: Any) -> dict[str, Any]:
        """The fields of transitions (..., width), NumPy or JAX."""
        fields = {name: rows[..., at] for name, at in self.places.items()}
        action = fields["action"]
        return fields | {
            "action": action if self.actions else action.astype(np.int32),
            "terminated": fields["terminated"] > 0,
            "truncated": fields["truncated"] > 0,
        }


class Replay:
    """The last `capacity` transitions of `num_envs` environments.

    lstm_size: of the recurrent state before each step, kept as h and c; 0: none
    """

    def __init__(self, capacity: int, num_envs: int, row: Row, lstm_size: int = 0) -> None:
        self.length = max(1, capacity // num_envs)
        self.num_envs = num_envs
        self.row = row
        shape = (self.length, num_envs)
        self.data: Batch = {"transitions": np.zeros((*shape, row.width), np.float32)}
        for name in ("h", "c") if lstm_size else ():
            self.data[name] = np.zeros((*shape, lstm_size), np.float32)
        self.added = 0  # time steps ever added

    def __len__(self) -> int:
        """Transitions held."""
        return min(self.added, self.length) * self.num_envs

    def add(self, step: Step, reward_scale: float = 1.0) -> None:
        """Append a time step. Of what the agent noted, `action` stands for the step's own."""
        at = self.added % self.length
        into = self.data["transitions"][at]
        for name, place in self.row.places.items():
            value = step.notes[name] if name in step.notes else getattr(step, name)
            into[:, place] = value * reward_scale if name.startswith("reward") else value
        for name in self.data.keys() - {"transitions"}:
            self.data[name][at] = step.notes[name]
        self.added += 1

    def arrays(self) -> Batch:
        """What is held, for a checkpoint."""
        held = min(self.added, self.length)
        found = {name: array[:held] for name, array in self.data.items()}
        return {**found, "counts": np.array([self.added])}

    def restore(self, arrays: Batch) -> None:
        """Go on with what was held; the environments have begun other episodes."""
        for name, array in arrays.items():
            if name != "counts":
                self.data[name][: len(array)] = array
        self.added = int(arrays["counts"][0])
        self.cut()

    def cut(self) -> None:
        """What is added next does not follow what was added last: the episodes end there."""
        if self.added:
            newest = self.data["transitions"][(self.added - 1) % self.length]
            at = self.row.places
            newest[:, at["truncated"]] = newest[:, at["terminated"]] == 0

    def rows(self, rng: np.random.Generator, count: int, span: int) -> tuple[Any, Any]:
        """Random starts (row, environment) of `span` time steps that are all still held."""
        held = min(self.added, self.length)
        if held < span:
            raise ValueError(f"cannot sample {span} steps in a row from {held}")
        oldest = self.added - held
        times = oldest + rng.integers(held - span + 1, size=count)
        return times % self.length, rng.integers(self.num_envs, size=count)

    def gather(self, rows: Any, envs: Any, n_step: int, gamma_per_s: float) -> NDArray[np.float32]:
        """Transitions at given places, (*rows.shape, width).

        With n-step returns, `reward_before_switch` is the discounted sum of up to n rewards,
        stopping where an episode ends, `reward_after_switch` is 0, `period_s` is the sum of their
        periods, and the next observation and `terminated` are those of the last one.
        """
        found = self.take(rows, envs)
        if n_step == 1:
            return found
        at = self.row.places
        last = self.row.unpack(found)
        reward = last["reward_before_switch"] + last["reward_after_switch"]
        elapsed_s = last["period_s"].copy()
        for k in range(1, n_step):
            over = last["terminated"] | last["truncated"]
            following = self.row.unpack(self.take((rows + k) % self.length, envs))
            more = following["reward_before_switch"] + following["reward_after_switch"]
            reward = np.where(over, reward, reward + np.float32(gamma_per_s) ** elapsed_s * more)
            elapsed_s = np.where(over, elapsed_s, elapsed_s + following["period_s"])
            for name in ("observation_next", "terminated", "truncated"):
                ended = over[..., None] if name == "observation_next" else over
                last[name] = np.where(ended, last[name], following[name])
        found[..., at["reward_before_switch"]], found[..., at["reward_after_switch"]] = reward, 0
        found[..., at["period_s"]] = elapsed_s
        for name in ("observation_next", "terminated"):
            found[..., at[name]] = last[name]
        return found

    def segments(self, rng: np.random.Generator, shape: tuple[int, ...], span: int) -> Batch:
        """Random segments: transitions (*shape, span, width); h, c of the first step."""
        rows, envs = (index.reshape(shape) for index in self.rows(rng, int(np.prod(shape)), span))
        steps = (rows[..., None] + np.arange(span)) % self.length
        return {
            "transitions": self.take(steps, envs[..., None]),
            "h": self.data["h"][rows, envs],
            "c": self.data["c"][rows, envs],
        }

    def take(self, rows: Any, envs: Any) -> NDArray[np.float32]:
        """Rows as they were added, at given places."""
        transitions = self.data["transitions"]
        flat = transitions.reshape(-1, transitions.shape[-1])
        return flat.take(rows * self.num_envs + envs, axis=0)


class DrawnReplay(Replay):
    """A replay that tells what can be drawn from it, and draws: transitions of `n_step` rewards.

    reward_scale: factor on rewards as they are added
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        row: Row,
        lstm_size: int = 0,
        reward_scale: float = 1.0,
        n_step: int = 1,
        gamma_per_s: float = 1.0,
    ) -> None:
        super().__init__(capacity, num_envs, row, lstm_size)
        self.reward_scale, self.n_step, self.gamma_per_s = reward_scale, n_step, gamma_per_s

    @property
    def span(self) -> int:
        """Steps in a row that a transition is made from."""
        return self.n_step

    def __len__(self) -> int:
        """Transitions that can be drawn."""
        return max(0, min(self.added, self.length) - self.span + 1) * self.num_envs

    def add(self, step: Step, reward_scale: float = 1.0) -> None:
        super().add(step, reward_scale * self.reward_scale)

    def sample(self, rng: np.random.Generator, count: int) -> Batch:
        """Random transitions (count, width)."""
        rows, envs = self.rows(rng, count, self.n_step)
        return {"transitions": self.gather(rows, envs, self.n_step, self.gamma_per_s)}
