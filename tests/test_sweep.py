"""Sweeps: what is drawn, what is kept on disk, and what survives a kill."""

import multiprocessing
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from midstride.cli import main
from midstride.disk.runs import read_result
from midstride.scale.local import KILLED, Event, do
from midstride.sweep.disk import FAILURE, read_table
from midstride.sweep.engine import RETRIES, local, run_sweep
from midstride.sweep.spec import expand, parse_spec, read_spec, shipped
from tests.helpers import wait_until

TINY = """
[common]
task = "pointmass"
steps = 800
num_envs = 4
learning_starts = 100
batch_size = 16
evaluate_every = 800
evaluation_episodes = 2
learning_rate = { low = 1e-4, high = 1e-2, log = true }
hidden = { choices = [[8], [16, 16]] }
stack_actions = { low = 0, high = 4, integer = true }
[arms.nothing]
[arms."vector-to-go"]
knowledge = ["vector_to_go"]
"""
QUIET = Console(quiet=True)


# --- Drawing


@given(trials=st.integers(1, 8), more=st.integers(1, 5), seed=st.integers(0, 3))
def test_draws_are_paired_and_do_not_depend_on_their_number(trials, more, seed):
    spec = parse_spec(f"seed = {seed}\n{TINY}", "tiny")
    few, many = expand(spec, trials), expand(spec, trials + more)
    assert few == many[: len(few)]
    assert len(few) == 2 * trials
    for a, b in zip(few[::2], few[1::2], strict=True):
        assert (a.arm, b.arm) == ("nothing", "vector-to-go")
        assert replace(a.config, knowledge=("vector_to_go",)) == b.config
    assert len({trial.config.seed for trial in few}) == trials


def test_a_field_is_drawn_whatever_else_is():
    fewer = parse_spec(TINY.replace("hidden", "#"), "tiny")
    for a, b in zip(expand(parse_spec(TINY, "t"), 5), expand(fewer, 5), strict=True):
        assert a.config.learning_rate == b.config.learning_rate


def test_ranges_are_filled_evenly():
    configs = [trial.config for trial in expand(parse_spec(TINY, "tiny"), 400)[::2]]
    rates = np.log10([config.learning_rate for config in configs])
    assert np.histogram(rates, [-4, -3.5, -3, -2.5, -2])[0] == pytest.approx(100, abs=30)
    stacks = np.bincount([config.stack_actions for config in configs])
    assert stacks == pytest.approx(80, abs=28)


def test_all_combinations_but_excluded_ones():
    source = """
    [common]
    execution = { choices = ["0", "25ms"] }
    latency = { choices = ["0", "5ms", "50ms"] }
    [[exclude]]
    execution = "0"
    latency = "0"
    """
    spec = parse_spec(source, "grid")
    found = {(t.config.execution, t.config.latency) for t in expand(spec, None)}
    pairs = {(e, a) for e in ("0", "25ms") for a in ("0", "5ms", "50ms")}
    assert found == pairs - {("0", "0")}
    drawn = [(t.config.execution, t.config.latency) for t in expand(spec, 200)]
    assert set(drawn) == found


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("[common]\nlearning_rat = 1", "learning_rat in .common.; did you mean learning_rate"),
        ("[commons]", "unknown field commons in the specification"),
        ("[arms.a]\nknowlege = []", "did you mean knowledge"),
        ("[common]\nhidden = { choices = [] }", "no choices to draw from"),
        ("[common]\ngamma = { low = 0.9, high = 0.9 }", "empty range"),
        ("[common]\ngamma = { low = 0.9 }", "needs choices, or low and high"),
        ("[common]\ngamma = { low = 0, high = 0.9, log = true }", "low must be above 0"),
        ("[common]\ngamma = { lo = 0 }", "unknown field lo for gamma"),
        ("[common]\nseed = 3", "outside of .common."),
        ("seed = -1", "seed must be"),
        ("[common", "is not TOML"),
        ("[arms.a]\n[arms.A]", "too much alike"),
        ("[common]\ngamma = 3.0", "gamma must be below 1"),
        ("[common]\ngamma = { choices = [0.9] }\n[[exclude]]\ngamma = 0.9", "next to nothing"),
    ],
)
def test_bad_specifications(source, error):
    with pytest.raises(ValueError, match=error):
        expand(parse_spec(source, "bad"), 2)


def test_ranges_have_no_combinations():
    with pytest.raises(ValueError, match="give --trials N"):
        expand(parse_spec(TINY, "tiny"), None)


@pytest.mark.parametrize("name", shipped())
def test_shipped_specifications_make_environments(name):
    from midstride.tasks.make import make_envs

    for trial in expand(read_spec(name), 20):
        make_envs(trial.config, 1)


# --- Running, with an engine that only pretends to lose and fail


def done(job):
    return {"hash": job.config.hash, "mean_return": 1.0, "interval": [0.5, 1.5], "returns": [1.0]}


def test_failures_are_recorded_and_killed_trials_tried_again(tmp_path):
    from midstride.disk.runs import Run

    spec = parse_spec(TINY, "tiny")
    calls = []

    def engine(jobs):
        calls.append([job.name for job in jobs])
        for i, job in enumerate(jobs):
            yield Event(i, "started")
            if job.name == "nothing #0":
                yield Event(i, "error", "no such thing")
            elif job.name == "nothing #1" or (job.name == "vector-to-go #1" and len(calls) == 1):
                yield Event(i, "error", KILLED)
            else:
                Run.start(job.folder, job.config).finish(done(job))
                yield Event(i, "result", done(job))

    rows = run_sweep(spec, 2, tmp_path, engine, QUIET)
    assert [row["status"] for row in rows] == ["failed", "done", "failed", "done"]
    assert rows[0]["reason"] == "no such thing"
    assert rows[2]["reason"] == f"{KILLED}, {1 + RETRIES} times"
    assert len(calls) == 1 + RETRIES
    assert calls[1] == ["nothing #1", "vector-to-go #1"]
    table = read_table(tmp_path)
    assert [row["mean_return"] for row in table] == ["", "1.0", "", "1.0"]
    assert table[1]["hidden"] in ("8", "16 16")

    calls.clear()
    again = run_sweep(spec, 2, tmp_path, engine, QUIET)
    assert calls == [[]]
    assert again == rows
    run_sweep(spec, 2, tmp_path, engine, QUIET, retry_failed=True)
    assert calls[1] == ["nothing #0", "nothing #1"]


def test_another_specification_is_refused(tmp_path):
    engine = lambda jobs: iter(())  # noqa: E731
    run_sweep(parse_spec(TINY, "tiny"), 1, tmp_path, engine, QUIET)
    with pytest.raises(ValueError, match="holds a sweep of another specification"):
        run_sweep(parse_spec(TINY + "\n", "tiny"), 1, tmp_path, engine, QUIET)


def test_command_line_errors(tmp_path, capsys, monkeypatch):
    spec = tmp_path / "tiny.toml"
    spec.write_text(TINY)
    monkeypatch.setitem(sys.modules, "ray", None)
    for args, error in (
        (["sweep", "nowhere.toml"], "neither a specification file nor one of figure2a, figure2b"),
        (["sweep", str(spec), "--trials", "0"], "trials must be at least 1"),
        (["sweep", str(spec), "--workers", "0"], "workers must be at least 1"),
        (["sweep", str(spec), "--trials", "1", "--address", "auto"], "add --engine ray"),
        (["sweep", str(spec), "--trials", "1", "--engine", "ray"], "midstride[ray]"),
        (["report", str(tmp_path)], "holds no sweep with finished trials"),
    ):
        with pytest.raises(SystemExit) as exit_:
            main([*args, *(["--output", str(tmp_path / "out")] if args[0] == "sweep" else [])])
        assert exit_.value.code == 2
        said = capsys.readouterr().err
        assert error in said
        assert len(said.strip().splitlines()) == 1


# --- Killed


def _sweep(folder: Path) -> None:
    run_sweep(parse_spec(TINY, "tiny"), 3, folder, local(2), QUIET)


def finished(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/*/result.json")}


def test_a_killed_sweep_goes_on_and_its_table_is_that_of_an_undisturbed_one(tmp_path):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for trial in expand(parse_spec(TINY, "tiny"), 3):  # the same trials, one by one, here
        from midstride.sweep.disk import job

        do(job(undisturbed, trial))
    run_sweep(parse_spec(TINY, "tiny"), 3, undisturbed, lambda jobs: iter(()), QUIET)

    process = multiprocessing.get_context("spawn").Process(target=_sweep, args=(killed,))
    process.start()
    end = time.monotonic() + 200
    while len(finished(killed)) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    time.sleep(1.0)  # its workers notice and end
    before = finished(killed)
    assert 2 <= len(before) < 6
    _sweep(killed)
    after = finished(killed)
    assert len(after) == 6
    assert {path: after[path] for path in before} == before  # none was run twice
    assert (killed / "table.csv").read_bytes() == (undisturbed / "table.csv").read_bytes()
    assert not list(killed.glob(f"trials/*/*/{FAILURE}"))
    assert read_result(next(iter(after)).parent) is not None


@pytest.mark.slow
def test_ray_gives_the_same_table_and_survives_a_lost_worker(tmp_path):
    ray = pytest.importorskip("ray")
    from midstride.scale.ray import connect, run_on_ray

    _sweep(tmp_path / "local")
    connect(None, workers=1)
    try:
        killed = False

        def engine(jobs):
            nonlocal killed
            for event in run_on_ray(jobs):
                yield event
                if event.kind == "result" and not killed:
                    wait_until(_training_processes)  # the next trial is under way
                    for pid in _training_processes():
                        os.kill(pid, signal.SIGKILL)
                    killed = True

        run_sweep(parse_spec(TINY, "tiny"), 3, tmp_path / "ray", engine, QUIET)
    finally:
        ray.shutdown()
    assert killed
    assert (tmp_path / "ray" / "table.csv").read_bytes() == (
        tmp_path / "local" / "table.csv"
    ).read_bytes()


def _training_processes() -> list[int]:
    """Ray's workers are called by what they run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::_train_there"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
