"""Sweeps: what is drawn, what is kept on disk, and what survives a kill."""

import importlib.util
import multiprocessing
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from midstride.disk.code import code_version
from midstride.disk.runs import Run, read_result
from midstride.report.page import write_report
from midstride.scale.engines import make_engine
from midstride.scale.jobs import KILLED, Event, Job, do
from midstride.scale.local import run_jobs
from midstride.scale.words import format_return
from midstride.sweep.disk import FAILURE, OLD, read_table
from midstride.sweep.engine import RETRIES, run_grid
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
FIRST = ["25ms", "25ms", 2, 8, 0.002773, (64, 64), 32]
LAST = ["50ms", "25ms", 2, 7, 0.0004613, (64, 64), 32]


# --- Drawing


@given(trials=st.integers(1, 8), more=st.integers(1, 5), seed=st.integers(0, 3))
def test_draws_are_paired_and_do_not_depend_on_their_number(trials, more, seed):
    spec = parse_spec(f"seed = {seed}\n{TINY}", "tiny")
    few, many = expand(spec, trials), expand(spec, trials + more)
    assert few == many[: len(few)]
    assert len(few) == 2 * trials
    for a, b in zip(few[::2], few[1::2], strict=True):
        assert (a.arm, b.arm) == ("nothing", "vector-to-go")
        assert a.training.with_(knowledge=("vector_to_go",)) == b.training
    assert len({trial.training.run.seed for trial in few}) == trials


def test_a_field_is_drawn_whatever_else_is():
    fewer = parse_spec(TINY.replace("hidden", "#"), "tiny")
    for a, b in zip(expand(parse_spec(TINY, "t"), 5), expand(fewer, 5), strict=True):
        assert a.training["learning_rate"] == b.training["learning_rate"]


def test_draws_are_what_they_always_were():
    """A sweep that was begun can be gone on with: a draw is its specification's, for good."""
    first, *_, last = (
        t for t in expand(read_spec("figure2a-shared"), 32) if t.arm.startswith("LSTM")
    )
    names = ("execution", "latency", "stack_actions", "actions", "learning_rate", "hidden")
    assert [first.training[name] for name in (*names, "lstm_size")] == FIRST
    assert [last.training[name] for name in (*names, "lstm_size")] == LAST


def test_a_setting_of_all_arms_counts_where_the_agent_has_it():
    feed_forward, recurrent = expand(read_spec("figure2a-shared"), 1)[::3]
    assert recurrent.training["lstm_size"] in (32, 64)
    assert "lstm_size" not in feed_forward.training.to_dict()["agent"]


def test_constants_are_trained_with_several_seeds():
    spec = parse_spec("seed = 2\n[arms.a]\n[arms.b]\ndouble = false", "seeds")
    trials = expand(spec, 3)
    assert [(t.arm, t.training.run.seed) for t in trials] == [
        (arm, 2000 + seed) for seed in range(3) for arm in "ab"
    ]
    assert len({t.training.with_(seed=0) for t in trials}) == 2


def test_ranges_are_filled_evenly():
    trainings = [trial.training for trial in expand(parse_spec(TINY, "tiny"), 400)[::2]]
    rates = np.log10([training["learning_rate"] for training in trainings])
    assert np.histogram(rates, [-4, -3.5, -3, -2.5, -2])[0] == pytest.approx(100, abs=30)
    stacks = np.bincount([training["stack_actions"] for training in trainings])
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
    found = {(t.training["execution"], t.training["latency"]) for t in expand(spec, None)}
    pairs = {(e, a) for e in ("0", "25ms") for a in ("0", "5ms", "50ms")}
    assert found == pairs - {("0", "0")}
    drawn = [(t.training["execution"], t.training["latency"]) for t in expand(spec, 200)]
    assert set(drawn) == found


BAD = {
    "[common]\nlearning_rat = 1": r"\[common\]: unknown .* learning_rat; did you mean",
    "[commons]": "unknown part of the specification bad: commons; did you mean common",
    "[arms.a]\nknowlege = []": r'\[arms."a"\]: unknown .* did you mean knowledge',
    "[common]\nlstm_size = 32": "unknown setting lstm_size",
    "[common]\nhidden = { choices = [] }": r"hidden: choices must be a list to draw from, got \[\]",
    "[common]\nhidden = { choices = 3 }": "choices must be a list to draw from, got 3",
    "[common]\nhidden = { choices = [[8], [true]] }": "hidden must be a list, each a whole number",
    "[common]\ngamma_per_s = { low = 0.9, high = 0.9 }": "empty range",
    "[common]\ngamma_per_s = { low = 0.9 }": "a space to draw from is choices, or low and high",
    "[common]\ngamma_per_s = { low = 0, high = 1, lg = true }": "unknown key of a range: lg",
    "[common]\ngamma_per_s = { low = 0, high = 0.9, log = true }": "low must be above 0",
    "[common]\ngamma_per_s = { lo = 0 }": r"\[common\]: gamma_per_s: a space to draw from is",
    '[common]\ngamma_per_s = { low = "a", high = 1 }': "low must be a number, got 'a'",
    "[common]\ngamma_per_s = { low = 0.5, high = inf }": "high must be a number, got inf",
    "[common]\ngamma_per_s = { low = 0.5, high = 2 }": "gamma_per_s must be a number from 1e-06",
    "[common]\nlearning_rate = { low = 0.1, high = 1, log = 1 }": "log must be true or false",
    "[common]\nsteps = { low = 10, high = 20 }": "steps must be a whole number, got 10.0",
    "[common]\nseed = 3": r"outside of \[common\]",
    "[arms.a]\nseed = 3": r'outside of \[arms."a"\]',
    "seed = -1": "seed must be a whole number of at least 0, got -1",
    "seed = true": "seed must be a whole number of at least 0, got True",
    "[common": "is not TOML",
    "[arms.a]\n[arms.A]": "too much alike",
    "[common]\ngamma_per_s = 3.0": r"\[common\]: gamma_per_s must be a number from 1e-06 to",
    '[common]\ndouble = "no"': r"\[common\]: double must be true or false, got 'no'",
    "[arms.a]\nsteps = true": r'\[arms."a"\]: steps must be a whole number, got True',
    "common = 3": r"\[common\] must be a table of settings, got 3",
    "arms = 3": r"\[arms\] must be tables, one for each arm, got 3",
    "[arms]\na = 3": r'\[arms."a"\] must be a table of settings, got 3',
    "exclude = 3": r"exclude must be tables, each written as \[\[exclude\]\], got 3",
    "exclude = [3]": "exclude must be tables",
    "[common]\ntask = 3": r"\[common\]: task must be text, got 3",
    '[common]\ntask = "juggling"': r"\[common\]: unknown task 'juggling'",
    '[arms.a]\nagent = "ppq"': r'\[arms."a"\]: unknown agent .ppq.: choose from dqn',
    "[common]\nlatency = true": r"\[common\]: latency must be a latency such as 25ms",
    '[arms.a]\nlatency = "7ms"': r'\[arms."a"\], draw 0: .* nearest valid times are 5 ms and 10 ms',
    "[common]\nlevels = 3\n[[exclude]]\nsteps = 3": "unknown setting of .common. steps",
    "[common]\nlevels = 3\n[[exclude]]\nlevels = 4": "levels is never 4: exclude one of 3",
    "[common]\nlevels = { choices = [3] }\n[[exclude]]\nlevels = 3": "next to nothing",
}  # fmt: skip


@pytest.mark.parametrize("source", BAD)
def test_bad_specifications_are_told_in_one_sentence_with_their_place(source):
    with pytest.raises(ValueError, match=BAD[source]) as caught:
        expand(parse_spec(source, "bad"), 2)
    assert "\n" not in str(caught.value).split("TOML")[0]


def test_a_latency_may_be_a_number_of_seconds():
    (trial,) = expand(parse_spec("[common]\nlatency = 0\nexecution = 0.05", "seconds"), 1)
    assert trial.training["latency"] == "0.0"


def test_ranges_have_no_combinations():
    with pytest.raises(ValueError, match="give --trials N"):
        expand(parse_spec(TINY, "tiny"), None)


@pytest.mark.parametrize("name", shipped())
def test_shipped_specifications_can_be_trained(name):
    distinct = {}
    for trial in expand(read_spec(name), 8):
        distinct.setdefault((trial.arm, trial.training.environment), trial.training)
    for training in list(distinct.values())[:20]:
        training.check()


def test_a_training_that_does_not_fit_is_told_before_anything_starts(tmp_path):
    source = """
    [common]
    task = "cartpole"
    [arms.fine]
    [arms.continuous]
    agent = "qtopt"
    """
    with pytest.raises(ValueError, match=r'\[arms."continuous"\], draw 0: .*continuous'):
        run_grid(parse_spec(source, "bad"), 2, tmp_path, run_jobs, QUIET)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "text"), [(712.4, "712"), (0.975, "0.97"), (-9.5, "-9.50"), (None, "-")]
)
def test_small_returns_have_digits(value, text):
    assert format_return(value) == text


# --- Running, with an engine that only pretends


def pretend(job: Job, value: float = 1.0) -> dict | None:
    """A run on disk as if it had been trained."""
    run = Run(job.folder, job.training.to_dict(), job.training.hash)
    run.start()
    run.finish({"mean_return": value, "interval": [0.5, 1.5], "returns": [1.0], "seconds": 2.0})
    return read_result(job.folder)


def pretending(jobs):
    for i, job in enumerate(jobs):
        yield Event(i, "result", pretend(job))


def test_failures_are_recorded_and_killed_trials_tried_again(tmp_path):
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
                yield Event(i, "result", pretend(job))

    rows = run_grid(spec, 2, tmp_path, engine, QUIET).rows
    assert [row["status"] for row in rows] == ["failed", "done", "failed", "done"]
    assert rows[0]["reason"] == "no such thing"
    assert rows[2]["reason"] == f"{KILLED}, {1 + RETRIES} times"
    assert len(calls) == 1 + RETRIES
    assert calls[1] == ["nothing #1", "vector-to-go #1"]
    table = read_table(tmp_path)
    assert [row["mean_return"] for row in table] == ["", "1.0", "", "1.0"]
    assert table[1]["hidden"] in ("8", "16 16")

    calls.clear()
    again = run_grid(spec, 2, tmp_path, engine, QUIET)
    assert calls == [[]]
    assert again.rows == rows
    run_grid(spec, 2, tmp_path, engine, QUIET, retry_failed=True)
    assert calls[1] == ["nothing #0", "nothing #1"]


def test_what_came_of_each_arm(tmp_path):
    grid = run_grid(parse_spec(TINY, "tiny"), 2, tmp_path, pretending, QUIET)
    assert list(grid.results) == ["nothing", "vector-to-go"]
    assert [t["knowledge"] for t in grid.trainings["vector-to-go"]] == [("vector_to_go",)] * 2
    assert grid.folders["nothing"] == [tmp_path / "trials" / "nothing" / f"000{i}" for i in (0, 1)]
    assert [result["returns"] for result in grid.results["nothing"]] == [[1.0]] * 2
    assert grid.seconds == 8
    assert not grid.failed


def test_a_sweep_of_failures_alone_is_an_error(tmp_path):
    def engine(jobs):
        return (Event(i, "error", "out of luck") for i in range(len(jobs)))

    with pytest.raises(RuntimeError, match=r"every trial of tiny failed: out of luck"):
        run_grid(parse_spec(TINY, "tiny"), 2, tmp_path, engine, QUIET)
    assert [row["status"] for row in read_table(tmp_path)] == ["failed"] * 4


def test_trials_of_other_code_are_put_aside_and_trained_again(tmp_path):
    spec, trained = parse_spec(TINY, "tiny"), []

    def engine(jobs):
        trained.append([job.name for job in jobs])
        return pretending(jobs)

    grid = run_grid(spec, 1, tmp_path, engine, QUIET)
    (run,) = grid.folders["nothing"]
    record = (run / "result.json").read_text()
    (run / "result.json").write_text(record.replace(code_version(), "another"))
    assert "another" in (run / "result.json").read_text()
    run_grid(spec, 1, tmp_path, engine, QUIET, any_code=True)
    run_grid(spec, 1, tmp_path, engine, QUIET)
    assert trained == [["nothing #0", "vector-to-go #0"], [], ["nothing #0"]]
    (aside,) = (tmp_path / OLD).rglob("result.json")  # nothing is lost
    assert '"code": "another"' in aside.read_text()


def test_another_specification_is_refused(tmp_path):
    engine = lambda jobs: iter(())  # noqa: E731
    run_grid(parse_spec(TINY, "tiny"), 1, tmp_path, engine, QUIET)
    with pytest.raises(ValueError, match="holds a sweep of another specification"):
        run_grid(parse_spec(TINY + "\n", "tiny"), 1, tmp_path, engine, QUIET)


def test_what_cannot_be_run_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for attempt, error in (
        (lambda: read_spec("nowhere.toml"), "neither a specification file nor one of .* figure2a"),
        (lambda: expand(parse_spec(TINY, "tiny"), 0), "trials must be at least 1"),
        (lambda: make_engine("local", 0, None), "workers must be at least 1"),
        (lambda: make_engine("local", None, "auto"), "add --engine ray"),
        (lambda: make_engine("ray", None, None), r"midstride\[ray\]"),
        (lambda: write_report(tmp_path, QUIET), "holds no sweep with finished trials"),
    ):
        with pytest.raises(ValueError, match=error):
            attempt()


# --- Killed


def _sweep(folder: Path) -> None:
    run_grid(parse_spec(TINY, "tiny"), 3, folder, partial(run_jobs, workers=2), QUIET)


def finished(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/*/result.json")}


def test_a_killed_sweep_goes_on_and_its_table_is_that_of_an_undisturbed_one(tmp_path):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for trial in expand(parse_spec(TINY, "tiny"), 3):  # the same trials, one by one, here
        do(Job(trial.arm, trial.training, undisturbed / trial.place))
    run_grid(parse_spec(TINY, "tiny"), 3, undisturbed, lambda jobs: iter(()), QUIET)

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
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray")
    from midstride.scale.ray import connect, run_on_ray

    _sweep(tmp_path / "local")
    connect(None, workers=1)
    import ray  # not before: Ray is told to ask for a token when it is imported

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

        run_grid(parse_spec(TINY, "tiny"), 3, tmp_path / "ray", engine, QUIET)
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
