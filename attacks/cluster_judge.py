"""What a training on a cluster must have come to, by the files that it wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.counts import Counts
from midstride.disk.runs import checkpoints_in, read_checkpoint
from midstride.policies import load


@dataclass
class Seen:
    """What was seen of a run while it went on."""

    checkpoints: set[str] = field(default_factory=set)  # their names
    steps: int = 0  # of the newest


def watch(folder: Path, seen: Seen, counts: Counts) -> None:
    """Read the checkpoints that are new: each must load, and none may go back."""
    for path in checkpoints_in(folder):
        if path.name in seen.checkpoints:
            continue
        try:
            arrays, about = read_checkpoint(path)
        except ValueError as error:
            if path.exists():  # else a newer one has taken its place meanwhile
                counts.add("lost", f"a checkpoint does not load: {error}")
            continue
        seen.checkpoints.add(path.name)
        if about["steps"] < seen.steps:
            counts.add("lost", f"{path}: {about['steps']} steps, after {seen.steps}")
        seen.steps = max(seen.steps, about["steps"])
        unique(arrays, about["steps"], str(path), counts)


def unique(arrays: dict[str, NDArray[Any]], steps: int, where: str, counts: Counts) -> None:
    """Count transitions that a checkpoint holds twice, and those that nobody took.

    Positions and velocities are floating-point numbers, different in every step: two equal rows are
    one step that was kept twice.
    """
    streams: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        kind, _, rest = name.partition(".")
        if kind == "stream":
            number, _, part = rest.partition(".")
            streams.setdefault(number, {})[part] = array
    rows = np.concatenate([_rows(held) for held in streams.values()])
    doubled = len(rows) - len(np.unique(rows, axis=0))
    if doubled:
        counts.add("doubled", f"{doubled} transitions in {where}", doubled)
    if len(rows) > steps:
        counts.add("doubled", f"{len(rows)} transitions after {steps} steps in {where}")


def _rows(held: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """What a stream holds, a row for each transition."""
    if "transitions" in held:
        return _flat(held["transitions"])
    return np.concatenate([_flat(held[name]) for name in ("state_capture", "action")], axis=1)


def _flat(part: NDArray[Any]) -> NDArray[np.float64]:
    """(rounds, environments, columns) as (transitions, columns)."""
    return part.reshape(part.shape[0] * part.shape[1], part.shape[2]).astype(float)


def finished(folder: Path, steps: int, every: int, seen: Seen, counts: Counts) -> None:
    """Count what is wrong with a run that says that it has finished."""
    watch(folder, seen, counts)
    counts.met("checkpoints read", len(seen.checkpoints))
    path = folder / "result.json"
    if not path.exists():
        counts.add("lost", f"{folder} has no result")
        return
    taken = json.loads(path.read_text())["steps"]
    if taken != steps:
        kind = "lost" if taken < steps else "doubled"
        counts.add(kind, f"{taken} steps in the result of {folder}, and not {steps}")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line["steps"] // every for line in lines]
    wanted = list(range(1, steps // every + 1))
    if len(set(evaluated)) < len(evaluated):
        counts.add("doubled", f"evaluations of {folder}: {evaluated}")
    if set(evaluated) != set(wanted):
        counts.add("lost", f"evaluations of {folder}: {evaluated}")
    last = lines[-1]
    counts.met("transitions forgotten with memories", int(last["transitions_forgotten"]))
    counts.met("actors replaced", int(last["actors_replaced"]))
    try:
        load(folder)
    except ValueError as error:
        counts.add("lost", f"the policy of {folder}: {error}")
