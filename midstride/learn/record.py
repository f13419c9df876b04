"""Steps of a world that freezes for thought, in the order in which they happened.

A record is what a replay or a log holds: what was observed, what was done, what was observed then,
and where episodes end. Rows follow one another: what is observed next in one row is what is
observed in the row after it, unless the episode ended between them. Where a log just stops, the
last row counts as truncated: nothing follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.disk.read import MIB
from midstride.disk.tensors import read_tensors, write_tensors
from midstride.finite import is_finite

Array = NDArray[Any]
NEEDED = ("observation", "action", "observation_next", "terminated", "truncated")
FIELDS = (*NEEDED, "held")
_WITHIN = "within."  # before ticks, in names of a file


@dataclass(frozen=True)
class Record:
    """Steps (n, ...), one after another.

    observation, observation_next: (n, columns), before and after each step
    action: (n, size) as the environment takes it, or (n,) whole numbers
    terminated: (n,) the episode ended there, by what happened in it
    truncated: (n,) it ended there by a time limit, or nothing is known of what came after
    held: (n,) nothing was in force: the actuators held, as before the first decision arrives
    within: what was observed inside of the steps, (n, columns) by ticks after their beginning
    """

    observation: Array
    action: Array
    observation_next: Array
    terminated: Array
    truncated: Array
    held: Array | None = None  # none were
    within: Mapping[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.held is None:
            object.__setattr__(self, "held", np.zeros(len(np.atleast_1d(self.action)), bool))
        for name in FIELDS:
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        for name in ("terminated", "truncated", "held"):
            object.__setattr__(self, name, getattr(self, name).astype(bool))
        _check_shapes(self)
        _check_numbers(self)
        _check_order(self)

    def __len__(self) -> int:
        return len(self.action)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """(n,) whether nothing follows a row."""
        ended = self.terminated | self.truncated
        ended[-1:] = True
        return np.asarray(ended)

    @property
    def left(self) -> NDArray[np.intp]:
        """(n,) steps from each row to the end of its episode, the row's own included."""
        ends = np.flatnonzero(self.ended)
        rows = np.arange(len(self))
        return np.asarray(ends[np.searchsorted(ends, rows)] - rows + 1)

    @property
    def age(self) -> NDArray[np.intp]:
        """(n,) steps of its episode before each row."""
        starts = np.append(0, np.flatnonzero(self.ended)[:-1] + 1)
        rows = np.arange(len(self))
        return np.asarray(rows - starts[np.searchsorted(starts, rows, side="right") - 1])

    @property
    def longest(self) -> int:
        """Steps of the longest episode."""
        return int(self.left.max())

    def __getitem__(self, rows: slice) -> Record:
        """A part, in order; where it is cut, nothing follows."""
        parts = {name: getattr(self, name)[rows] for name in FIELDS}
        parts["truncated"] = parts["truncated"].copy()
        parts["truncated"][-1:] |= ~parts["terminated"][-1:]
        return Record(**parts, within={t: array[rows] for t, array in self.within.items()})


def joined(records: Sequence[Record]) -> Record:
    """One after another; the first row of one does not follow the last of the one before."""
    whole = [record[0 : len(record)] for record in records]
    ticks = set.intersection(*(set(record.within) for record in whole))
    return Record(
        **{n: np.concatenate([getattr(r, n) for r in whole]) for n in FIELDS},
        within={t: np.concatenate([r.within[t] for r in whole]) for t in sorted(ticks)},
    )


# --- Where records come from ----------------------------------------------------------------------


def as_record(data: Any, action_space: spaces.Space[Any]) -> Record:
    """A record from a record, a replay buffer, a dict of arrays, a dataset of Minari or a file."""
    if isinstance(data, Record):
        return data
    if isinstance(data, (str, Path)):
        return load_record(data)
    if isinstance(data, Mapping):
        unknown = sorted(set(data) - {*FIELDS, "within"})
        missing = [name for name in NEEDED if name not in data]
        if unknown or missing:
            wrong = f"no {', '.join(missing)}" if missing else f"an unknown {unknown[0]!r}"
            raise ValueError(f"the data have {wrong}: give arrays {', '.join(NEEDED)}")
        return Record(**data)
    if callable(getattr(data, "iterate_episodes", None)):
        return from_minari(data)
    return from_replay_buffer(data, action_space)


def from_minari(dataset: Any) -> Record:
    """What a dataset of Minari holds; its episodes are flat arrays, or this is an error."""
    records = []
    for episode in dataset.iterate_episodes():
        seen = np.asarray(episode.observations)
        if seen.ndim != 2:
            raise ValueError(f"dataset has observations of shape {seen.shape[1:]}, not flat ones")
        terminated = np.asarray(episode.terminations, bool)
        truncated = np.asarray(episode.truncations, bool) & ~terminated
        records.append(Record(seen[:-1], episode.actions, seen[1:], terminated, truncated))
    if not records:
        raise ValueError("the dataset holds no episode")
    return joined(records)


def from_replay_buffer(buffer: Any, action_space: spaces.Space[Any]) -> Record:
    """What a replay buffer of Stable-Baselines3 or of sbx holds, in memory.

    action_space: of the model; the buffer holds continuous actions scaled to [-1, 1]
    """
    try:
        size = buffer.buffer_size if buffer.full else buffer.pos
        stored = {n: getattr(buffer, n) for n in ("observations", "actions", "dones", "timeouts")}
        after = buffer.next_observations
    except AttributeError as error:
        raise ValueError(
            "this is no replay buffer of Stable-Baselines3 that holds what was observed next "
            f"({error}): give model.replay_buffer, made with optimize_memory_usage=False"
        ) from None
    if isinstance(stored["observations"], dict):
        raise ValueError("this replay buffer holds dicts, and a record needs flat observations")
    if size == 0:
        raise ValueError("the replay buffer is empty: train first, or give another")
    order = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size
    records = []
    for env in range(stored["dones"].shape[1]):
        of_env = {name: array[order, env] for name, array in stored.items()}
        timeouts, done = of_env["timeouts"] > 0, of_env["dones"] > 0
        truncated = timeouts.copy()
        truncated[-1] |= not done[-1]
        records.append(
            Record(
                observation=of_env["observations"],
                action=_as_done(of_env["actions"], action_space),
                observation_next=after[order, env],
                terminated=done & ~timeouts,
                truncated=truncated,
            )
        )
    return joined(records)


def _as_done(actions: Array, space: spaces.Space[Any]) -> Array:
    """Actions of a buffer as the environment took them."""
    if isinstance(space, spaces.Discrete):
        return actions.reshape(-1).astype(int)
    if not isinstance(space, spaces.Box):
        raise ValueError(f"adapt knows continuous and discrete actions, not {space}")
    low, high = space.low.ravel(), space.high.ravel()
    return np.asarray(low + (actions.reshape(len(actions), -1) + 1) / 2 * (high - low), np.float32)


def save_record(record: Record, path: Path) -> None:
    """Write a safetensors file, with a checksum."""
    arrays = {name: getattr(record, name) for name in FIELDS}
    arrays |= {f"{_WITHIN}{ticks}": array for ticks, array in record.within.items()}
    write_tensors(path, arrays, {"format": "midstride"})


def load_record(path: str | Path) -> Record:
    """A safetensors file with the arrays of a `Record`, by name.

    Arrays observation, action, observation_next, terminated and truncated are needed; held and
    within.TICKS may be there. One that others wrote needs no checksum.
    """
    arrays, _ = read_tensors(Path(path), needs_checksum=False, largest=16_384 * MIB)
    missing = [name for name in NEEDED if name not in arrays]
    if missing:
        raise ValueError(
            f"{path} is no record: it has no {', '.join(missing)}; it needs {', '.join(NEEDED)}"
        )
    ticks = {name: name.removeprefix(_WITHIN) for name in arrays if name.startswith(_WITHIN)}
    try:
        return Record(
            **{name: arrays[name] for name in FIELDS if name in arrays},
            within={int(tick): arrays[name] for name, tick in ticks.items()},
        )
    except ValueError as error:
        raise ValueError(f"the record {path} cannot be used: {error}") from None


# --- Checks ---------------------------------------------------------------------------------------


def _check_shapes(record: Record) -> None:
    rows = {name: len(np.atleast_1d(getattr(record, name))) for name in FIELDS}
    rows |= {f"what is observed {t} ticks later": len(array) for t, array in record.within.items()}
    if len(set(rows.values())) > 1:
        said = ", ".join(f"{count:,} of {name}" for name, count in rows.items())
        raise ValueError(f"a record needs equally many of everything, got {said}")
    if not rows["action"]:
        raise ValueError("the record is empty: it has no step")
    before, after = record.observation, record.observation_next
    if before.ndim != 2 or before.shape != after.shape:
        raise ValueError(
            "a record needs flat observations (steps, columns), alike before and after each step, "
            f"got {before.shape} and {after.shape}"
        )
    if record.action.ndim > 2 or record.terminated.ndim != 1 or record.truncated.ndim != 1:
        raise ValueError(
            "a record needs actions (steps, size) or (steps,), and one terminated and one "
            f"truncated for each step, got {record.action.shape}, {record.terminated.shape} and "
            f"{record.truncated.shape}"
        )


def _check_numbers(record: Record) -> None:
    for name in ("observation", "action", "observation_next"):
        array = getattr(record, name)
        if array.dtype.kind not in "iuf":
            raise ValueError(f"{name} must be numbers, got {array.dtype}")
        if not is_finite(array):
            rows = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
            raise ValueError(
                f"{name} of step {int(np.argmax(rows)):,} is not finite ({int(rows.sum()):,} steps "
                "are not): leave out the episodes that they are in"
            )


def _check_order(record: Record) -> None:
    """An error unless each row follows the one before, or begins an episode."""
    if (record.terminated & record.truncated).any():
        at = int(np.argmax(record.terminated & record.truncated))
        raise ValueError(f"step {at:,} is both terminated and truncated: it can only be one")
    follows = (record.observation_next[:-1] == record.observation[1:]).all(axis=1)
    broken = ~follows & ~record.ended[:-1]
    if broken.any():
        at = int(np.argmax(broken))
        raise ValueError(
            f"what is observed after step {at:,} is not what is observed before step {at + 1:,} "
            f"({int(broken.sum()):,} of {len(record):,} steps are so): give steps in the order in "
            "which they happened, and mark the last step of each episode terminated or truncated"
        )
