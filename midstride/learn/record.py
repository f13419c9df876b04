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
from numpy.typing import NDArray

from midstride.disk.read import MIB
from midstride.disk.tensors import read_tensors, write_tensors
from midstride.finite import is_finite, misfits
from midstride.settings import shown

Array = NDArray[Any]
NEEDED = ("observation", "action", "observation_next", "terminated", "truncated")
FIELDS = (*NEEDED, "held")
_FLAGS = ("terminated", "truncated", "held")
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
            count = _as_array("action", self.action).shape[:1]
            object.__setattr__(self, "held", np.zeros(count, bool))
        for name in FIELDS:
            object.__setattr__(self, name, _as_array(name, getattr(self, name)))
        for name in _FLAGS:
            object.__setattr__(self, name, _as_flags(name, getattr(self, name)))
        within = {int(t): _as_array(_later(t), array) for t, array in self.within.items()}
        object.__setattr__(self, "within", within)
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


# --- Files ----------------------------------------------------------------------------------------


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
    unknown = [n for n in arrays if n not in FIELDS and not ticks.get(n, "").isdecimal()]
    if unknown:
        raise ValueError(
            f"{path} is no record: it has an unknown {shown(unknown[0])!r}; arrays are "
            f"{', '.join(FIELDS)} and {_WITHIN}TICKS"
        )
    try:
        return Record(
            **{name: arrays[name] for name in FIELDS if name in arrays},
            within={int(tick): arrays[name] for name, tick in ticks.items()},
        )
    except ValueError as error:
        raise ValueError(f"the record {path} cannot be used: {error}") from None


# --- Checks ---------------------------------------------------------------------------------------


def _later(ticks: int) -> str:
    return f"what is observed {ticks} ticks later"


def _as_array(name: str, values: Any) -> Array:
    try:
        return np.asarray(values)
    except ValueError:  # rows of several lengths
        raise ValueError(
            f"{name} must be an array of numbers, got rows of several lengths"
        ) from None


def _as_flags(name: str, array: Array) -> Array:
    """True or false of each step; 0 and 1 stand for them, as in files of others."""
    known = array.dtype.kind in "biuf"
    if not known or not ((array == 0) | (array == 1)).all():
        raise ValueError(f"{name} must be true or false for each step")
    return array.astype(bool)


def _check_shapes(record: Record) -> None:
    counted = {name: getattr(record, name) for name in FIELDS}
    counted |= {_later(ticks): array for ticks, array in record.within.items()}
    rows = {name: array.shape[0] if array.ndim else 1 for name, array in counted.items()}
    if len(set(rows.values())) > 1:
        said = ", ".join(f"{count:,} of {name}" for name, count in rows.items())
        raise ValueError(f"a record needs equally many of everything, got {said}")
    if not rows["action"]:
        raise ValueError("the record is empty: it has no step")
    before = record.observation
    for name in ("observation_next", *map(_later, record.within)):
        if before.ndim != 2 or before.shape != counted[name].shape:
            raise ValueError(
                "a record needs flat observations (steps, columns), alike before and after each "
                f"step, got {before.shape} of observation and {counted[name].shape} of {name}"
            )
    if record.action.ndim not in (1, 2):
        raise ValueError(
            f"a record needs actions (steps, size) or (steps,), got {record.action.shape}"
        )
    for name in _FLAGS:
        if counted[name].ndim != 1:
            raise ValueError(
                f"a record needs one {name} for each step, (steps,), got {counted[name].shape}"
            )


def _check_numbers(record: Record) -> None:
    numbers = {name: getattr(record, name) for name in NEEDED[:3]}
    for name, array in (numbers | {_later(t): a for t, a in record.within.items()}).items():
        if array.dtype.kind not in "iuf":
            raise ValueError(f"{name} must be numbers, got {array.dtype}")
        if not is_finite(array):
            rows = misfits(array).reshape(len(array), -1).any(axis=1)
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
