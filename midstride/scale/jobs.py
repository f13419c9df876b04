"""A training as a job, and what engines tell about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from midstride.learn.agents import Training
from midstride.learn.train import OnProgress, train

KILLED = "its process was killed"


@dataclass(frozen=True)
class Job:
    """A training to do."""

    name: str
    training: Training
    folder: Path
    # What to do with a folder that holds an unfinished run.
    unfinished: Literal["refuse", "resume", "restart"] = "refuse"
    tensorboard: bool = False
    keep_checkpoint: bool = False


class Event(NamedTuple):
    """What is new about a job."""

    job: int
    kind: Literal["started", "progress", "result", "error"]
    content: Any = None


Engine = Callable[[Sequence[Job]], Iterator[Event]]


def do(job: Job, on_progress: OnProgress = lambda progress: None) -> dict[str, Any]:
    """Do a job here and now."""
    return train(
        job.training,
        job.folder,
        job.unfinished != "refuse",
        on_progress,
        job.tensorboard,
        job.keep_checkpoint,
        restart=job.unfinished == "restart",
    )


def reason(error: Exception) -> str:
    """What went wrong, as a sentence: with the error's type, unless it is of those we write."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, MemoryError):
        return ": ".join(["there is not enough memory", *lines[:1]])
    if lines and isinstance(error, (ValueError, OSError, RuntimeError)):
        return lines[0]
    return ": ".join([type(error).__name__, *lines[:1]])
