"""A run on disk: configuration, metrics, checkpoints, result. Every file is whole or not there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors

from midstride.disk.files import commit, machine, versions, write_whole

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

CONFIG, METRICS, RESULT, CHECKPOINTS = "config.json", "metrics.jsonl", "result.json", "checkpoint"
KEPT = 2  # checkpoints: the newest, and one to fall back on


@dataclass
class Run:
    """A run folder, open for writing."""

    folder: Path
    settings: dict[str, Any]  # of environment, agent and run
    hash: str
    metrics: list[dict[str, Any]] = field(default_factory=list)
    events: Any = None  # a TensorBoard writer, if asked for

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
            "machine": machine(),
        }
        write_whole(self.folder / CONFIG, json.dumps(record, indent=2, allow_nan=False) + "\n")

    @classmethod
    def open(cls, folder: Path) -> Run:
        """A run that was started before."""
        record = read_record(folder)
        settings = {name: record.get(name) for name in ("environment", "agent", "run")}
        return cls(folder, settings, str(record.get("hash")), read_metrics(folder))

    def log(self, **values: Any) -> None:
        """Add a line to the metrics."""
        self.metrics.append(values)
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in self.metrics)
        write_whole(self.folder / METRICS, text)
        if self.events is not None:
            for name, value in values.items():
                if name != "steps" and value is not None:
                    self.events.add_scalar(name, value, values["steps"])
            self.events.flush()

    def finish(self, result: dict[str, Any], keep_checkpoint: bool = False) -> None:
        """Write the result; checkpoints, which may be large, have done their work.

        keep_checkpoint: the newest, so that the run can be made longer
        """
        record = {"hash": self.hash, "version": versions().get("midstride"), **result}
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
        contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        path = self.folder / CHECKPOINTS / f"{steps:012d}.safetensors"
        write_whole(path, save_tensors(contiguous, metadata))
        self._forget_checkpoints(KEPT)

    def load_checkpoint(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """The newest checkpoint that can be read, or None if there is none at all."""
        errors = []
        for path in reversed(self._checkpoints()):
            try:
                arrays, about = read_checkpoint(path)
            except ValueError as error:
                errors.append(str(error))
                continue
            if about["hash"] != self.hash:
                raise ValueError(
                    f"the checkpoint {path} is of another configuration than {self.folder}"
                )
            self.metrics = [line for line in self.metrics if line["steps"] <= about["steps"]]
            return arrays, about
        if errors:
            raise ValueError(errors[0])
        return None

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
def claimed(folder: Path) -> Iterator[None]:
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
        raise ValueError(f"another process is training in {folder}: wait until it ends") from None
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
        with safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["about"])
            if not isinstance(about, dict) or not {"hash", "steps", "random"} <= about.keys():
                raise ValueError("it does not say what it is of")
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the checkpoint {path} is damaged: {error}") from None


def read_record(folder: Path) -> dict[str, Any]:
    """What a run folder says of itself: settings of environment, agent and run, and provenance."""
    return _read_json(folder / CONFIG, "a run")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / METRICS
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict) or "steps" not in line:
            raise ValueError(f"{path} is damaged: line {number} has no steps")
    return lines


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a run, or None if it has not finished."""
    if not (folder / RESULT).exists():
        return None
    return _read_json(folder / RESULT, "a finished run")


def is_of(result: dict[str, Any], settings_hash: str) -> bool:
    """Whether a result is of these settings, and of this version of the code."""
    made_by = (result.get("hash"), result.get("version"))
    return made_by == (settings_hash, versions().get("midstride"))


def _read_json(path: Path, what: str) -> dict[str, Any]:
    if not path.exists():
        raise ValueError(f"{path.parent} is not the folder of {what}: {path.name} is missing")
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError, OSError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it holds no names and values")
    return found
