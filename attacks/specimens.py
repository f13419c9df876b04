"""A valid specimen of every kind of file that we load, from tiny real runs, and its loader."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from safetensors.numpy import load as load_tensors

from midstride.disk.runs import CHECKPOINTS, Run, read_curve, read_record, read_result
from midstride.disk.tensors import digest, sealed
from midstride.latency import Trace
from midstride.learn.agents import Training
from midstride.learn.train import train
from midstride.learn.trainer import Trainer
from midstride.measure.statistics import by_arm, paired
from midstride.policies import DESCRIPTION, WEIGHTS, load
from midstride.report.page import report_of
from midstride.scale.jobs import Event, Job
from midstride.sweep.disk import FAILURE, claim, outcome, record_failure
from midstride.sweep.engine import run_grid
from midstride.sweep.spec import expand, parse_spec, read_spec
from midstride.tasks.registry import environment_of

Format = Literal["json", "lines", "toml", "csv", "tensors"]
SPEC = """
[common]
task = "pointmass"
steps = 64
num_envs = 2
hidden = { choices = [[8], [16]] }
batch_size = 8
learning_starts = 32
evaluate_every = 64
evaluation_episodes = 1
replay_size = 64
learning_rate = { low = 1e-4, high = 1e-2, log = true }
latency = "50ms"

[arms.nothing]

[arms."vector-to-go"]
knowledge = ["vector_to_go"]

[[exclude]]
hidden = [8]
"""
_DQN = {
    "steps": 96, "num_envs": 2, "hidden": (8,), "batch_size": 8, "learning_starts": 32,
    "evaluate_every": 32, "evaluation_episodes": 1, "checkpoint_every": 32, "replay_size": 64,
    "latency": "50ms", "knowledge": ("vector_to_go",),
}  # fmt: skip
_QTOPT = {
    "actions": "continuous", "value_range": (0.0, 10.0), "num_envs": 2, "steps": 32,
    "evaluate_every": 32, "evaluation_episodes": 1, "checkpoint_every": 32, "hidden_size": 8,
    "samples": 8, "batch_size": 8, "demonstrations": 16, "offline_updates": 2,
    "replay_size": 32, "latency": "50ms", "knowledge": ("vector_to_go",),
}  # fmt: skip


@dataclass(frozen=True)
class Specimen:
    """A file that is as it should be, in a folder of its own, and what loads it from there."""

    name: str
    format: Format
    folder: Path
    file: str  # in the folder; this one is mutated
    content: bytes
    load: Callable[[Path], Any]  # the folder -> what it holds
    weights: bytes = b""  # of a policy whose description is mutated

    def put(self, content: bytes, is_sealed: bool = False) -> None:
        """Let this be in the file; is_sealed: and checksums beside it be right for it."""
        (self.folder / self.file).write_bytes(content)
        if self.weights:
            arrays = load_tensors(self.weights)
            about = {"description": digest(content)}
            data = sealed(arrays, about) if is_sealed else self.weights
            (self.folder / WEIGHTS).write_bytes(data)


def specimens(where: Path) -> list[Specimen]:
    """Train and sweep for a moment in an empty folder; a specimen of every kind of file."""
    dqn = train_one(where / "dqn", Training.of("pointmass", "dqn", **_DQN))
    qtopt = train_one(where / "qtopt", Training.of("pointmass", "qtopt", **_QTOPT))
    sweep, result = where / "sweep", read_result(where / "dqn") or {}

    def pretend(jobs: Sequence[Job]) -> Iterator[Event]:
        for i, job in enumerate(jobs):
            run = Run(job.folder, job.training.to_dict(), job.training.hash)
            run.start()
            run.finish({**result, "hash": run.hash})
            yield Event(i, "result", result)

    run_grid(parse_spec(SPEC, "tiny"), 2, sweep, pretend, Console(quiet=True))
    record_failure(where / "failed", "out of luck")
    trace = where / "trace"
    trace.mkdir()
    (trace / "trace.csv").write_text("step,latency_ms\n0,12.5\n1,15\n2,10\n")
    (trace / "spec.toml").write_text(SPEC.replace('"50ms"', '"trace:trace.csv,up"'))
    claiming = _Claim(json.loads((sweep / "sweep.json").read_text()))
    kinds: list[tuple[str, Format, Path, str, Callable[[Path], Any]]] = [
        ("config of dqn", "json", where / "dqn", "config.json", _settings),
        ("config of qtopt", "json", where / "qtopt", "config.json", _settings),
        ("metrics", "lines", where / "dqn", "metrics.jsonl", _curve),
        ("result", "json", where / "dqn", "result.json", read_result),
        ("failure", "json", where / "failed", FAILURE, lambda folder: outcome(folder, "")),
        ("sweep, reported", "json", sweep, "sweep.json", _report),
        ("sweep, gone on with", "json", sweep, "sweep.json", claiming),
        ("table", "csv", sweep, "table.csv", _report),
        ("trace", "csv", trace, "trace.csv", lambda f: Trace.from_csv(f / "trace.csv")),
        ("specification", "toml", trace, "spec.toml", _spec),
        ("policy of dqn", "tensors", where / "dqn", WEIGHTS, _policy),
        ("description of dqn", "json", where / "dqn", DESCRIPTION, _policy),
        ("policy of qtopt", "tensors", where / "qtopt", WEIGHTS, _policy),
        ("description of qtopt", "json", where / "qtopt", DESCRIPTION, _policy),
        ("checkpoint of dqn", "tensors", where / "dqn", _checkpoint(where / "dqn"), dqn),
        ("checkpoint of qtopt", "tensors", where / "qtopt", _checkpoint(where / "qtopt"), qtopt),
    ]
    return [_placed(where / "mutated", *kind) for kind in kinds]


def _placed(
    where: Path, name: str, form: Format, folder: Path, file: str, load: Callable[[Path], Any]
) -> Specimen:
    """A specimen in a copy of its folder, which nothing else is in."""
    own = where / name.replace(" ", "-")
    shutil.copytree(folder, own)
    weights = (own / WEIGHTS).read_bytes() if file == DESCRIPTION else b""
    return Specimen(name, form, own, file, (own / file).read_bytes(), load, weights)


def train_one(folder: Path, training: Training) -> _Restored:
    train(training, folder, keep_checkpoint=True)
    return _Restored(training)


def _checkpoint(run: Path) -> str:
    (path,) = (run / CHECKPOINTS).glob("*.safetensors")
    return f"{CHECKPOINTS}/{path.name}"


def _settings(folder: Path) -> Any:
    """As --resume and evaluate do: what is wrapped is made, for that is where code would run."""
    training = Training.from_dict(read_record(folder), folder)
    environment = environment_of(folder)
    if environment.task.startswith(("gym:", "dmc:")):
        environment.make(1).close()
    return training


def _policy(folder: Path) -> Any:
    policy: Any = load(folder)
    size = policy.observation_size
    return policy.weights, policy.description, policy(np.zeros((2, size), np.float32))


def _curve(folder: Path) -> Any:
    return read_curve(folder, "evaluation")


def _report(folder: Path) -> Any:
    """All that a report reads, and checks before it draws."""
    about, rows = report_of(folder)
    name, swept, specification = (about[k] for k in ("name", "swept", "specification"))
    draws, values = paired(by_arm(rows))
    return name, swept, specification, rows, draws, values


class _Claim:
    """Goes on with a sweep, which writes down what it is."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record

    def __call__(self, folder: Path) -> Any:
        claim(folder, self.record)
        return (folder / "sweep.json").read_bytes()


def _spec(folder: Path) -> Any:
    spec = read_spec(str(folder / "spec.toml"))
    for trial in (trials := expand(spec, 2)):
        if trial.training.environment.task.startswith(("gym:", "dmc:")):
            trial.training.check()
    return [(trial.arm, trial.draw, trial.training) for trial in trials]


class _Restored:
    """Restores a training from the checkpoint of a folder, as a resume does."""

    def __init__(self, training: Training) -> None:
        self.trainer = Trainer.create(training)
        self.hash = training.hash

    def __call__(self, folder: Path) -> Any:
        run = Run(folder, {}, self.hash)
        if not self.trainer.restore(run):
            raise ValueError("there is no checkpoint")
        trainer = self.trainer
        return trainer.agent.arrays(), trainer.steps, trainer.returns, trainer.seconds
