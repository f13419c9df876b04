"""What was recorded in a world that waits, and the same seen in hindsight, as a world with latency.

Physics depends on when actions *switch*, not on when observations were taken. Where step i executed
action a_i from state s_i to s_{i+1} in a frozen world, the same steps are those of a world with a
latency of k steps: the decision that came into force at step i + k was made on an observation
captured at step i, while a_i was in force and a_{i+1} .. a_{i+k-1} were pending. (`Concurrent`
with a latency of k periods observes just these: tests compare the two bit for bit.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Record:
    """Control steps in the order in which they happened, episode after episode; first axis: steps.

    An episode ends where `terminated` or `truncated` is set; within one, what follows a step is
    what the next step observes.
    """

    observation: Array  # (n, columns)
    action: Array  # (n, size) as the environment took it; (n,) whole numbers if discrete
    observation_next: Array  # (n, columns)
    terminated: Mask  # (n,)
    truncated: Mask  # (n,)

    def __post_init__(self) -> None:
        n = len(self.observation)
        for name in ("action", "observation_next", "terminated", "truncated"):
            if len(getattr(self, name)) != n:
                raise ValueError(
                    f"a record needs as many rows of {name} as of observation, got "
                    f"{len(getattr(self, name))} and {n}"
                )
        if n == 0:
            raise ValueError("a record needs at least one step, got none")
        if self.observation.ndim != 2 or self.observation_next.shape != self.observation.shape:
            raise ValueError(
                "observation and observation_next of a record must be rows of the same columns, "
                f"got shapes {self.observation.shape} and {self.observation_next.shape}"
            )
        for name in ("observation", "action", "observation_next"):
            bad = ~np.isfinite(getattr(self, name).reshape(n, -1).astype(float)).all(axis=1)
            if bad.any():
                raise ValueError(f"step {int(bad.argmax())} of the record has no finite {name}")
        astray = ~self.ended[:-1] & (self.observation_next[:-1] != self.observation[1:]).any(axis=1)
        if astray.any():
            raise ValueError(
                f"step {int(astray.argmax())} of the record is followed by what the next step does "
                "not observe, and no episode ends there: put the steps in the order in which they "
                "happened, and mark the ends of episodes (terminated, truncated)"
            )

    def __len__(self) -> int:
        return len(self.observation)

    @property
    def ended(self) -> Mask:
        return np.asarray(self.terminated | self.truncated)

    @property
    def left(self) -> NDArray[np.int64]:
        """Steps from each one to the end of its episode, itself included."""
        ends = np.flatnonzero(self.ended)
        last = np.append(ends, len(self) - 1)
        return last[np.searchsorted(ends, np.arange(len(self)))] - np.arange(len(self)) + 1

    def joined(self, other: Record) -> Record:
        """This record, then another; an episode under way is cut off between them."""
        cut = self.truncated.copy()
        cut[-1] |= not self.terminated[-1]
        mine = {**vars(self), "truncated": cut}
        return Record(**{n: np.concatenate([a, getattr(other, n)]) for n, a in mine.items()})


@dataclass(frozen=True)
class Hindsight:
    """Decisions of a world with latency, found in a record; first axis: decisions."""

    observation_capture: Array  # (m, columns)
    in_flight: Array  # (m, slots, action columns): in force, then pending by age, newest last
    observation_switch: Array  # (m, columns): where the decision came into force
    delay: NDArray[np.int64]  # (m,) control steps from capture to switch


def hindsight(record: Record, encoded: Array, delay: int, slots: int | None = None) -> Hindsight:
    """Every decision of the record, as if made `delay` control steps before it came into force.

    encoded: actions of the record as columns of an observation (n, action columns)
    slots: actions in flight that are shown, zeros where there are fewer (default: as many as are)
    """
    if delay < 0:
        raise ValueError(f"a delay is 0 or more control steps, got {delay}")
    slots = max(1, delay) if slots is None else slots
    if slots < max(1, delay):
        raise ValueError(f"a delay of {delay} steps has {delay} actions in flight, not {slots}")
    if delay == 0:
        return _without_delay(record, encoded, slots)
    rows = np.flatnonzero(record.left >= delay)
    rows = rows[~record.terminated[rows + delay - 1]]  # where it ended nothing is decided
    if len(rows) == 0:
        raise ValueError(
            f"no episode of the record is longer than a latency of {delay} control steps"
        )
    in_flight = np.zeros((len(rows), slots, encoded.shape[1]), encoded.dtype)
    in_flight[:, 0] = encoded[rows]
    for ago in range(1, delay):  # the newest decision stands last, whatever the delay
        in_flight[:, -ago] = encoded[rows + delay - ago]
    return Hindsight(
        record.observation[rows],
        in_flight,
        record.observation_next[rows + delay - 1],
        np.full(len(rows), delay),
    )


def _without_delay(record: Record, encoded: Array, slots: int) -> Hindsight:
    """The switch is the capture: what is in force is the action of the step before."""
    in_flight = np.zeros((len(record), slots, encoded.shape[1]), encoded.dtype)
    begins = np.append(True, record.ended[:-1])
    in_flight[1:, 0] = encoded[:-1]
    in_flight[begins, 0] = 0
    return Hindsight(
        record.observation, in_flight, record.observation, np.zeros(len(record), np.int64)
    )


def from_replay_buffer(buffer: Any, low: Array, high: Array) -> Record:
    """The record that a Stable-Baselines3 or sbx replay buffer in memory holds.

    It keeps actions scaled to [-1, 1], and one row per environment at each place.
    """
    count, start = (buffer.buffer_size, buffer.pos) if buffer.full else (buffer.pos, 0)
    order = (start + np.arange(count)) % buffer.buffer_size
    parts = []
    for env in range(buffer.n_envs):
        observation = buffer.observations[order, env].astype(np.float32)
        following = buffer.next_observations[order, env].astype(np.float32)
        ended = buffer.dones[order, env].astype(bool)
        timed_out = buffer.timeouts[order, env].astype(bool)
        # A replay that began again over its oldest steps has seams that nobody marked.
        seam = np.append((following[:-1] != observation[1:]).any(axis=1), True) & ~ended
        scaled = buffer.actions[order, env]
        action = low + (scaled + 1) / 2 * (high - low)
        parts.append(
            Record(observation, action, following, ended & ~timed_out, (ended & timed_out) | seam)
        )
    found = parts[0]
    for part in parts[1:]:
        found = found.joined(part)
    return found


FIELDS = ("observation", "action", "observation_next", "terminated", "truncated")


def load_record(path: Path) -> Record:
    """A record from a safetensors file with the arrays of `Record`, by their names.

    Without `observation_next` it is what the next step observes; the last step of each episode,
    which nothing follows, is then left out.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise ValueError(f"the record {path} cannot be read: {error}") from None
    missing = [name for name in ("observation", "action", "terminated") if name not in arrays]
    if missing:
        raise ValueError(f"the record {path} has no {', '.join(missing)}")
    arrays.setdefault("truncated", np.zeros(len(arrays["terminated"]), bool))
    for name in ("terminated", "truncated"):
        arrays[name] = arrays[name].astype(bool)
    if "observation_next" not in arrays:
        kept = ~(arrays["terminated"] | arrays["truncated"])
        kept[-1] = False
        following = np.roll(arrays["observation"], -1, axis=0)[kept]
        ends = np.append(~kept[1:], True)  # the step before a last one is the last that is kept
        arrays = {name: array[kept] for name, array in arrays.items()}
        arrays["observation_next"] = following
        arrays["truncated"] = ends[kept]
        arrays["terminated"] = np.zeros(len(following), bool)
    return Record(**{name: arrays[name] for name in FIELDS})
