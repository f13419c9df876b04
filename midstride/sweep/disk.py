"""A sweep on disk: whose folder it is, what came of each trial, and the one table of them all.

What has been done is what lies on disk. A trial is a run folder; one without a result is run from
its start, so that a sweep that was killed and resumed gives the same table as one that was not.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from midstride.disk.files import write_whole
from midstride.disk.runs import read_result
from midstride.scale.local import Job
from midstride.sweep.spec import Spec, Trial

SWEEP, TABLE, FAILURE = "sweep.json", "table.csv", "failure.json"


def claim(folder: Path, spec: Spec, trials: Sequence[Trial]) -> None:
    """Make the folder this sweep's; an error if it is another's."""
    path = folder / SWEEP
    if path.exists():
        try:
            held = json.loads(path.read_text())["hash"]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ValueError(f"{path} is damaged") from None
        if held != spec.hash:
            raise ValueError(
                f"{folder} holds a sweep of another specification: give another --output"
            )
    record = {
        "name": spec.name,
        "hash": spec.hash,
        "draws": 1 + max(trial.draw for trial in trials),
        "arms": list(spec.arms),
        "swept": list(spec.swept),
        "specification": spec.source,
    }
    write_whole(path, json.dumps(record, indent=2) + "\n")


def outcome(folder: Path, trial: Trial) -> dict[str, Any] | None:
    """What came of a trial: its result, or {"reason": ...}, or None if it has not ended."""
    run = folder / trial.place
    result = read_result(run)
    if result is not None and result["hash"] == trial.config.hash:
        return result
    if (run / FAILURE).exists():
        return dict(json.loads((run / FAILURE).read_text()))
    return None


def record_failure(folder: Path, trial: Trial, reason: str) -> None:
    write_whole(folder / trial.place / FAILURE, json.dumps({"reason": reason}) + "\n")


def job(folder: Path, trial: Trial) -> Job:
    name = f"{trial.arm} #{trial.draw}"
    return Job(name, trial.config, folder / trial.place, unfinished="restart")


def table_rows(folder: Path, spec: Spec, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """A row for each trial that has ended, in the order of trials."""
    rows = []
    for trial in trials:
        found = outcome(folder, trial)
        if found is None:
            continue
        failed = "reason" in found
        low, high = ("", "") if failed else found["interval"]
        rows.append(
            {
                "arm": trial.arm,
                "draw": trial.draw,
                "status": "failed" if failed else "done",
                "mean_return": "" if failed else found["mean_return"],
                "low": low,
                "high": high,
                **{name: _cell(getattr(trial.config, name)) for name in spec.swept},
                "reason": found.get("reason", ""),
            }
        )
    return rows


def write_table(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The sweep's one table: from it alone every statistic and plot is made."""
    if not rows:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(folder / TABLE, text.getvalue())


def read_table(folder: Path) -> list[dict[str, str]]:
    path = folder / TABLE
    if not path.exists():
        raise ValueError(f"{folder} holds no sweep with finished trials: {TABLE} is missing")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"arm", "draw", "status", "mean_return"} <= rows[0].keys():
        raise ValueError(f"{path} is not the table of a sweep")
    return rows


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value
