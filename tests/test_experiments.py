"""Experiments leave tables, plots and provenance, whatever is trained."""

import csv
import json

import pytest
from rich.console import Console

from midstride.disk.runs import Run
from midstride.learn.config import Config
from midstride.paper import experiments
from midstride.scale.local import Event
from midstride.sweep.spec import parse_spec

TINY = Config(
    task="pointmass", steps=320, num_envs=4, hidden=(8,), learning_starts=100, batch_size=16,
    evaluate_every=160, evaluation_episodes=2,
)  # fmt: skip


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_awareness(tmp_path):
    experiments.awareness(TINY, 1, tmp_path / "out", tmp_path / "runs", Console(quiet=True))
    returns = rows(tmp_path / "out" / "returns.csv")
    assert {row["kind"] for row in returns} == set(experiments.AWARENESS)
    assert len(returns) == 4 * 8
    curves = rows(tmp_path / "out" / "curves.csv")
    assert [int(row["steps"]) for row in curves] == [160, 320] * 4
    table = (tmp_path / "out" / "table.md").read_text().splitlines()
    blocking = [float(row["return"]) for row in returns if row["kind"] == "blocking"]
    assert table[2].startswith(f"| blocking | {sum(blocking) / 8:.0f} | 1.00 |")
    assert (tmp_path / "out" / "curves.png").stat().st_size > 5000


def test_latencies(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "EPISODES", 3)
    experiments.latencies(TINY, 1, tmp_path / "out", tmp_path / "runs", Console(quiet=True))
    returns = rows(tmp_path / "out" / "returns.csv")
    assert len(returns) == len(experiments.ONE_FOR_ALL) * len(experiments.LATENCIES) * 3
    assert (tmp_path / "out" / "latencies.png").stat().st_size > 5000
    assert json.loads((tmp_path / "out" / "config.json").read_text())["config"]["episodes"] == 3


def test_figure(tmp_path, monkeypatch):
    source = "[common]\ngamma = { low = 0.9, high = 0.99 }\n[arms.a]\n[arms.b]\ndouble = false"
    monkeypatch.setattr(experiments, "read_spec", lambda name: parse_spec(source, name))

    def engine(jobs):
        for i, job in enumerate(jobs):
            result = {"mean_return": float(i), "interval": [i - 1, i + 1], "seconds": 10.0}
            Run.start(job.folder, job.config).finish(result)
            yield Event(i, "result", result)

    output = tmp_path / "out"
    experiments.figure("figure2a", 4, engine, output, tmp_path / "sweep", Console(quiet=True))
    assert [float(row["mean_return"]) for row in rows(output / "table.csv")] == list(range(8))
    record = json.loads((output / "config.json").read_text())
    assert record["config"]["specification"] == source
    assert record["seconds"] == 80
    pair = rows(output / "pairs.csv")[0]
    assert (pair["arm"], float(pair["difference"])) == ("b", 1.0)
    assert float(pair["improvement"]) == pytest.approx(1)
    assert (output / "report.html").exists()
    assert not (output / "trials").exists()
