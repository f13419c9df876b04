"""A sweep on disk: whose folder it is, what came of each trial, and the one table of them all.

What has been done is what lies on disk. A trial is a run folder. Reading a sweep needs no learning
framework: reports are made from these files alone.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from midstride.disk.files import write_whole
from midstride.disk.read import Hints, Missing, check_record, damage_of, read_csv, read_json
from midstride.disk.runs import CONFIG, claimed, is_of, read_record, read_result
from midstride.settings import Range

SWEEP, TABLE, FAILURE = "sweep.json", "table.csv", "failure.json"
_COLUMNS = ("arm", "draw", "status", "mean_return")
MOST_ROWS = 200_000
_ABOUT: Hints = {"name": str, "swept": tuple[str, ...], "specification": str}
_Table: Any = dict
_DESIGN: Hints = {
    "controls": tuple[str, ...], "compare": tuple[_Table, ...],
    "fails_below": Annotated[float, Range(0, 1)],
}  # fmt: skip
# Begins a formula in one spreadsheet or another; the last four are theirs of East Asia.
_FORMULA = ("=", "+", "-", "@", "'", "\uff1d", "\uff0b", "\uff0d", "\uff20")
LATE = ", run at the latency"  # after the name of a control: its policies where the draw lives
OLD = "trials-of-before"  # holds trials that other settings or other code made


def claim(folder: Path, record: Mapping[str, Any]) -> None:
    """Make the folder that of the sweep that `record` describes; an error if it is another's."""
    path = folder / SWEEP
    with suppress(Missing):
        if read_json(path, {"hash": str})["hash"] != record["hash"]:
            raise ValueError(
                f"{folder} holds a sweep of another specification: give another --output"
            )
    write_whole(path, json.dumps(record, indent=2, allow_nan=False) + "\n")


def outcome(run: Path, hash: str, any_code: bool = False) -> dict[str, Any] | None:
    """What came of a trial: its result, or {"reason": ...}, or None if it has not ended.

    A result counts only if it is of these settings, and of this code (unless `any_code`).
    """
    result = read_result(run)
    if result is not None and is_of(result, hash, any_code):
        return result
    if result is None:
        with suppress(Missing):
            return {"reason": read_json(run / FAILURE, {"reason": str})["reason"]}
    return None


def put_aside(folder: Path, place: Path, hash: str, any_code: bool = False) -> bool:
    """Move a run away that cannot be gone on with; whether there was one. Nothing is lost."""
    run = folder / place
    if not (run / CONFIG).exists():
        return False
    record = read_record(run)
    if all(is_of(one, hash, any_code) for one in (record, read_result(run) or record)):
        return False
    number = 1
    while (aside := folder / OLD / f"{number}" / place.relative_to(place.parts[0])).exists():
        number += 1
    aside.parent.mkdir(parents=True, exist_ok=True)
    with claimed(run):  # or it is in use
        run.rename(aside)
    return True


def record_failure(run: Path, reason: str) -> None:
    write_whole(run / FAILURE, json.dumps({"reason": reason}, allow_nan=False) + "\n")


def write_table(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The sweep's one table: from it alone every statistic and plot is made."""
    if not rows:
        return
    write_csv(folder / TABLE, list(rows[0]), (list(row.values()) for row in rows))


def write_csv(path: Path, heading: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """A table as a file; `original` gives back what a cell was."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([neutral(cell) for cell in line] for line in [heading, *lines])
    write_whole(path, text.getvalue())


def neutral(cell: object) -> object:
    """A cell that no spreadsheet takes for a formula: what could be one is quoted by a '.

    Numbers stay as they are, also negative ones.
    """
    if not isinstance(cell, str) or not cell.lstrip().startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def original(cell: str) -> str:
    """What `neutral` was given, as text."""
    quoted = cell.startswith("'") and cell[1:].lstrip().startswith(_FORMULA)
    return cell[1:] if quoted else cell


def read_table(folder: Path) -> list[dict[str, str]]:
    """The rows of a sweep's table: all texts, those of draws and returns readable as numbers."""
    path = folder / TABLE
    try:
        lines = read_csv(path, _COLUMNS, MOST_ROWS)
    except Missing:
        raise ValueError(
            f"{folder} holds no sweep with finished trials: {TABLE} is missing"
        ) from None
    rows = [{original(name): original(cell) for name, cell in line.items()} for line in lines]
    seen = set()
    for number, row in enumerate(rows, start=2):
        with damage_of(path):
            draw = _number(row["draw"])
            if draw is None or not 0 <= draw < 2**53 or draw != int(draw) or "." in row["draw"]:
                raise ValueError(f"row {number} has no draw")
            if row["status"] not in ("done", "failed"):
                raise ValueError(f"row {number} is neither done nor failed")
            if row["status"] == "done" and _number(row["mean_return"]) is None:
                raise ValueError(f"row {number} has no mean_return")
            if (row["arm"], draw) in seen:
                raise ValueError(f"row {number} is of a draw that is there already")
        seen.add((row["arm"], draw))
    return rows


def read_about(folder: Path) -> dict[str, Any]:
    """What a sweep's folder says of it: its name, the settings that differ, its specification."""
    about = read_json(folder / SWEEP, _ABOUT, {"design": dict})
    with damage_of(folder / SWEEP):
        design = check_record(about.get("design", {}), {}, _DESIGN)
        for one in design.get("compare", ()):
            check_record(one, {"arm": str, "other": str, "expected": str})
    return {**about, "design": design}


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
