"""What lies on disk after a fault: files are whole, nothing is lost, nothing is there twice.

Independent of the code that writes: JSON by Python's own reader, pictures and films by how their
formats say that they end. Only checkpoints and policies are read as a user reads them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attacks.counts import Counts
from midstride.disk.runs import read_checkpoint
from midstride.policies import load

PART = ".midstride-part-"


@dataclass(frozen=True)
class State:
    """How far a run has come, as its folder tells."""

    checkpoint: int = 0  # steps of the newest
    metrics: tuple[int, ...] = ()  # steps of the lines
    result: bytes | None = None


def look(folder: Path, every: int, counts: Counts, before: State | None = None) -> State:
    """The state of a run folder; what is wrong with it is counted.

    every: steps between two lines of metrics
    """
    before = before or State()
    whole(folder, counts)
    metrics: list[int] = []
    if (folder / "metrics.jsonl").exists():
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        metrics = [_json(line).get("steps", -1) for line in lines]
    if len(set(metrics)) < len(metrics):
        counts.add("doubled", f"metrics of {folder}: {metrics}")
    newest = 0
    for path in sorted((folder / "checkpoint").glob("*.safetensors")):
        try:
            newest = max(newest, int(read_checkpoint(path)[1]["steps"]))
        except ValueError as error:
            counts.add("lost", f"a checkpoint: {error}")
    result = None
    if (folder / "result.json").exists():
        result = (folder / "result.json").read_bytes()
        try:
            load(folder)
        except ValueError as error:
            counts.add("lost", f"a policy: {error}")
    if result is None and newest < before.checkpoint:
        counts.add("lost", f"a checkpoint of {folder}: {newest} after {before.checkpoint} steps")
    wanted = list(range(every, newest + 1, every))
    if metrics[: len(wanted)] != wanted:
        counts.add("lost", f"metrics of {folder}: {metrics} with a checkpoint at {newest}")
    if before.result is not None and result != before.result:
        counts.add("doubled" if result else "lost", f"the result of {folder}")
    return State(newest, tuple(metrics), result)


def finished(folder: Path, every: int, steps: int, counts: Counts) -> None:
    """Count what is wrong with a run that has finished."""
    state = look(folder, every, counts)
    if state.result is None:
        counts.add("lost", f"{folder} has no result")
    if list(state.metrics) != list(range(every, steps + 1, every)):
        counts.add("lost", f"metrics of the finished {folder}: {state.metrics}")
    parts = [path.name for path in folder.rglob(f"{PART}*")]
    if parts:
        counts.add("other", f"parts left in {folder}: {parts}")


def whole(folder: Path, counts: Counts) -> None:
    """Count files that are not whole."""
    for path in folder.rglob("*"):
        if not path.is_file() or path.name.startswith(PART):
            continue
        if not _is_whole(path):
            counts.add("lost", f"{path} is not whole ({path.stat().st_size} bytes)")


def _is_whole(path: Path) -> bool:
    data = path.read_bytes()
    if path.suffix == ".json":
        return bool(_json(data.decode(errors="replace")))
    if path.suffix == ".jsonl":
        lines = data.decode(errors="replace").splitlines()
        return data.endswith(b"\n") and all(_json(line) for line in lines)
    if path.suffix == ".png":
        return data.startswith(b"\x89PNG") and data[-8:-4] == b"IEND"
    if path.suffix == ".mp4":
        return _boxes(data) is not None
    if path.suffix == ".html":
        return data.rstrip().endswith(b"</html>")
    if path.suffix == ".csv":
        return data.endswith(b"\n")
    return True


def _boxes(data: bytes) -> set[bytes] | None:
    """The boxes that an MP4 consists of, or None if it is cut off or has no index."""
    found, at = set(), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size < 8 or at + size > len(data):
            return None
        found.add(data[at + 4 : at + 8])
        at += size
    return found if {b"ftyp", b"moov", b"mdat"} <= found else None


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
