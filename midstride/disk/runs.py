"""A run on disk: configuration, metrics, checkpoints, result. Every file is whole or not there."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from numpy.typing import NDArray

from midstride.disk.code import code_version
from midstride.disk.files import NotWritten, commit, machine, versions, write_whole
from midstride.disk.read import Hints, Missing, damage_of, parse_json, read_json, read_json_lines
from midstride.disk.tensors import Unsealed, read_tensors, write_tensors
from midstride.settings import Range, checked, shown

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

CONFIG, METRICS, RESULT, CHECKPOINTS = "config.json", "metrics.jsonl", "result.json", "checkpoint"
NOTES = "notes.txt"  # what happened to the run that its user should know
KEPT = 2  # checkpoints: the newest, and one to fall back on

_Table: Any = dict
_Steps = Annotated[int, Range(0, 10**15)]
_Seconds = Annotated[float, Range(0)]
_RECORD: Hints = {"environment": dict, "agent": dict, "run": dict, "hash": str}
_PROVENANCE: Hints = {"versions": dict, "commit": str | None, "code": str, "machine": str}
_LINE: Hints = {"steps": _Steps}
_OUTCOME: Hints = {
    "hash": str, "version": str | None, "mean_return": float,
    "interval": tuple[float, float], "returns": tuple[float, ...], "seconds": _Seconds,
}  # fmt: skip
_FURTHER: Hints = {"code": str, "steps": _Steps, "split_s": dict, "measures": dict}
_ABOUT: Hints = {
    "hash": str, "steps": _Steps, "random": dict, "returns": tuple[float, ...],
    "seconds": _Seconds, "clock": tuple[_Table, _Table],
    "owed": Annotated[float, Range(0, 1)], "losses": dict, "agent": dict,
}  # fmt: skip

_log = logging.getLogger("midstride")


@dataclass
class Run:
    """A run folder, open for writing."""

    folder: Path
    settings: dict[str, Any]  # of environment, agent and run
    hash: str
    metrics: list[dict[str, Any]] = field(default_factory=list)
    events: Any = None  # a TensorBoard writer, if asked for
    code: str | None = None  # that began it, if it was begun before

    @staticmethod
    def check_new(folder: Path) -> None:
        """An error if the folder holds a run that something would be lost of."""
        if (folder / RESULT).exists() or checkpoints_in(folder):
            raise ValueError(
                f"{folder} holds a run already: go on with --resume, or give another --name"
            )

    def start(self) -> None:
        """Write down what the run is; a start that left nothing behind is written over."""
        record = {
            **self.settings,
            "hash": self.hash,
            "versions": versions(),
            "commit": commit(),
            "code": code_version(),
            "machine": machine(),
        }
        write_whole(self.folder / CONFIG, json.dumps(record, indent=2, allow_nan=False) + "\n")

    @classmethod
    def open(cls, folder: Path) -> Run:
        """A run that was started before."""
        record = read_record(folder)
        settings = {name: record.get(name) for name in ("environment", "agent", "run")}
        return cls(
            folder,
            settings,
            str(record.get("hash")),
            read_metrics(folder),
            None,
            record.get("code"),
        )

    def log(self, **values: Any) -> None:
        """Add a line to the metrics."""
        self.metrics.append(values)
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in self.metrics)
        write_whole(self.folder / METRICS, text)
        if self.events is not None:
            for name, value in values.items():
                if name != "steps" and value is not None:
                    self.events.add_scalar(name, value, values["steps"])
            try:
                self.events.flush()
            except OSError as error:
                raise NotWritten(self.folder / "events.out.tfevents", error) from error

    def finish(self, result: dict[str, Any], keep_checkpoint: bool = False) -> None:
        """Write the result; checkpoints, which may be large, have done their work.

        keep_checkpoint: the newest, so that the run can be made longer
        """
        version = versions().get("midstride")
        record = {"hash": self.hash, "version": version, "code": code_version(), **result}
        write_whole(self.folder / RESULT, json.dumps(record, indent=2, allow_nan=False) + "\n")
        if keep_checkpoint:
            self._forget_checkpoints(1)
        else:
            shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)
        if self.events is not None:
            self.events.close()

    def save_checkpoint(
        self, steps: int, arrays: dict[str, NDArray[Any]], about: dict[str, Any]
    ) -> None:
        """Write a checkpoint, then forget the oldest."""
        record = {"hash": self.hash, "steps": steps, **about}
        metadata = {"about": json.dumps(record, allow_nan=False)}
        path = self.folder / CHECKPOINTS / f"{steps:012d}.safetensors"
        write_tensors(path, arrays, metadata)
        self._forget_checkpoints(KEPT)

    def load_checkpoint(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """The newest checkpoint that can be read, or None if there is none at all.

        Where a newer one is damaged, that is said, and it is moved out of the way. Metrics of steps
        that have to be taken again are forgotten.
        """
        damaged: dict[Path, str] = {}
        for path in reversed(self._checkpoints()):
            try:
                arrays, about = read_checkpoint(path)
            except ValueError as error:
                damaged[path] = str(error)
                continue
            if about["hash"] != self.hash:
                raise ValueError(
                    f"the checkpoint {path} is of another configuration than {self.folder}"
                )
            self.metrics = [line for line in self.metrics if line["steps"] <= about["steps"]]
            for newer, sentence in damaged.items():
                self.note(f"{sentence}; the run goes on from step {about['steps']:,}")
                with suppress(OSError):
                    newer.rename(newer.with_suffix(".damaged"))
            return arrays, about
        if damaged:
            raise ValueError(next(iter(damaged.values())))
        return None

    def note(self, sentence: str) -> None:
        """Tell the user something about the run, and keep it in its folder."""
        _log.warning("%s", sentence)
        path = self.folder / NOTES
        before = path.read_text() if path.is_file() else ""
        write_whole(path, f"{before}{sentence}\n")

    def rename_checkpoints(self, new_hash: str) -> None:
        """Let the newest checkpoint go on as one of other settings: of a run made longer."""
        found = self.load_checkpoint()
        self.hash = new_hash
        if found is not None:
            arrays, about = found
            self.save_checkpoint(about["steps"], arrays, {**about, "hash": new_hash})

    def _forget_checkpoints(self, kept: int) -> None:
        for old in self._checkpoints()[:-kept]:
            old.unlink()

    def _checkpoints(self) -> list[Path]:
        return checkpoints_in(self.folder)


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first; an error if they cannot be looked at."""
    try:
        found = list((folder / CHECKPOINTS).iterdir())  # glob would find nothing, and say nothing
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ValueError(
            f"the checkpoints in {folder / CHECKPOINTS} cannot be read ({error.strerror}): mend "
            "that, or give another --name"
        ) from None
    return sorted(path for path in found if path.suffix == ".safetensors")


@contextmanager
def claimed(folder: Path, doing: str = "training") -> Iterator[None]:
    """Hold a folder for one training: a second one in it would spoil both.

    The claim ends with the process, however it ends. Where folders cannot be locked (some network
    drives, Windows), nothing is held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = None
    try:
        if fcntl is not None:
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(cast(int, handle))
        raise ValueError(f"another process is {doing} in {folder}: wait until it ends") from None
    except OSError:
        pass
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
        with suppress(OSError):
            folder.rmdir()  # if nothing came of it


def empty(folder: Path) -> None:
    """Delete what is in a folder that is claimed; the claim is on the folder itself."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def event_writer() -> Any:
    """The class that writes what TensorBoard shows."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ValueError(
            "TensorBoard is missing: pip install 'midstride[tensorboard]', or leave out "
            "--tensorboard"
        ) from None
    return SummaryWriter


def read_checkpoint(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and metadata of a checkpoint file; loading it runs no code."""
    try:
        arrays, texts = read_tensors(path)
    except Unsealed as error:
        raise ValueError(f"{error}: it is damaged, or was made by another version") from None
    with damage_of(path):
        if "about" not in texts:
            raise ValueError("it does not say what it is of")
    about = parse_json(texts["about"].encode(), path, _ABOUT)
    with damage_of(path):
        for name, seconds in (item for part in about["clock"] for item in part.items()):
            checked(name, seconds, float)
        for name, loss in about["losses"].items():  # sum and count
            total, count = checked(name, loss, tuple[float, float])
            about["losses"][name] = total, int(checked(name, count, Annotated[float, Range(1)]))
    return arrays, about


def read_record(folder: Path) -> dict[str, Any]:
    """What a run folder says of itself: settings of environment, agent and run, and provenance."""
    try:
        return read_json(folder / CONFIG, _RECORD, _PROVENANCE)
    except Missing:
        raise ValueError(f"{folder} is not the folder of a run: {CONFIG} is missing") from None


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics: the steps that each is of, and numbers by name."""
    path = folder / METRICS
    try:
        lines = read_json_lines(path, _LINE, float | None)
    except Missing:
        return []
    for number, (line, following) in enumerate(itertools.pairwise(lines), start=2):
        if following["steps"] <= line["steps"]:
            raise ValueError(f"{path} is damaged: line {number} is not of later steps")
    return lines


def read_curve(folder: Path, name: str) -> dict[int, float]:
    """One number of a run's metrics by steps."""
    curve: dict[int, float] = {}
    for line in read_metrics(folder):
        if line.get(name) is None:
            raise ValueError(f"{folder / METRICS} is damaged: a line has no {name}")
        curve[line["steps"]] = line[name]
    return curve


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a run, or None if it has not finished."""
    try:
        found = read_json(folder / RESULT, _OUTCOME, _FURTHER)
    except Missing:
        return None
    with damage_of(folder / RESULT):
        for name, values in found.get("measures", {}).items():
            checked(name, values, tuple[float, ...])
            if not values:
                raise ValueError(f"it has no values of {shown(name)}")
        if not found["returns"]:
            raise ValueError("it has no returns")
        for name, seconds in found.get("split_s", {}).items():
            checked(name, seconds, float)
    return found


def is_of(record: Mapping[str, Any], settings_hash: str, any_code: bool = False) -> bool:
    """Whether a run or its result is of these settings, and of this code (`code_version`).

    any_code: settings alone count
    """
    same_code = any_code or record.get("code") == code_version()
    return record.get("hash") == settings_hash and same_code
