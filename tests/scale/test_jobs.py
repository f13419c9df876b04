"""Several trainings at once, when all goes well and when processes die."""

import multiprocessing
import os
import signal
from functools import partial
from unittest.mock import patch

import pytest
from rich.console import Console

from midstride.disk.runs import Run, claimed, read_result
from midstride.learn.agents import Training
from midstride.learn.train import Progress, train
from midstride.policies import load
from midstride.scale.jobs import KILLED, Job, do, reason
from midstride.scale.local import run_jobs
from midstride.scale.show import status, train_all
from tests.helpers import wait_until

TINY = Training.of(
    "pointmass", steps=800, num_envs=4, hidden=(16,), learning_starts=100, batch_size=16,
    evaluate_every=400, evaluation_episodes=2, checkpoint_every=400,
)  # fmt: skip


def jobs(folder, count, **options):
    return [Job(f"seed {s}", TINY.with_(seed=s, **options), folder / str(s)) for s in range(count)]


def test_workers_give_what_a_training_here_gives(tmp_path):
    results = train_all(jobs(tmp_path, 3), Console(quiet=True), partial(run_jobs, workers=2))
    alone = train(TINY.with_(seed=1), tmp_path / "alone")
    assert results[1]["returns"] == alone["returns"]
    assert results[0]["returns"] != alone["returns"]


def test_a_failed_job_stops_nothing_but_itself(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "result.json").write_text("{}")
    events = list(run_jobs(jobs(tmp_path, 3), workers=1))
    ends = {e.job: (e.kind, e.content) for e in events if e.kind in ("result", "error")}
    assert [ends[i][0] for i in range(3)] == ["error", "result", "result"]
    assert "holds a run already" in ends[0][1]
    with pytest.raises(RuntimeError, match=r"seed 0 failed: .* holds a run already"):
        train_all([jobs(tmp_path, 1)[0]], Console(quiet=True))


def test_an_environment_that_fails_stops_only_its_own_job(tmp_path):
    options = {**TINY.run.to_dict(), "hidden": (8,), "learning_starts": 100, "latency": "20ms"}
    names = ("gym:attacks.environments:NanReward-v0", "gym:InvertedPendulum-v5")
    both = [
        Job(name, Training.of(name, **options), tmp_path / str(i)) for i, name in enumerate(names)
    ]
    ends = {e.job: e for e in run_jobs(both, workers=1) if e.kind in ("result", "error")}
    assert ends[0].kind == "error"
    assert "gave the reward nan in its step 60: a reward must be a finite number; saved" in (
        ends[0].content
    )
    assert ends[1].kind == "result"


def test_whatever_goes_wrong_in_a_worker_comes_back_as_a_sentence(tmp_path):
    broken = Job("broken", None, tmp_path)
    (started, ended) = run_jobs([broken], workers=1)
    assert started.kind == "started"
    assert ended.kind == "error"
    assert ended.content.startswith("AttributeError: 'NoneType'")
    assert reason(ValueError("steps must be at least 1")) == "steps must be at least 1"
    assert reason(KeyError("x")) == "KeyError: 'x'"
    assert reason(MemoryError()) == "there is not enough memory"
    assert reason(RuntimeError("\nfirst line\nsecond")) == "first line"


def test_nothing_is_shown_of_returns_before_there_is_one():
    assert "return    - eps" in status(Progress(100, 200, 50.0, None, 0.5))
    assert "return  612 eps" in status(Progress(100, 200, 50.0, 612.3, 0.5))


def children() -> set[int | None]:
    return {process.pid for process in multiprocessing.active_children()}


def test_a_killed_worker_loses_only_its_job(tmp_path):
    before, killed, ends = children(), False, {}
    for event in run_jobs(jobs(tmp_path, 2, steps=4000), workers=1):
        if event.kind == "progress" and event.job == 0 and not killed:
            (worker,) = children() - before
            assert worker is not None
            os.kill(worker, signal.SIGKILL)
            killed = True
        if event.kind in ("result", "error"):
            ends[event.job] = (event.kind, event.content)
    assert ends[0] == ("error", KILLED)
    assert ends[1][0] == "result"


def test_unfinished_runs_are_resumed_or_restarted(tmp_path):
    train(TINY, tmp_path / "undisturbed")
    undisturbed = load(tmp_path / "undisturbed").weights
    for unfinished in ("resume", "restart"):
        folder = tmp_path / unfinished
        with patch.object(Run, "finish"):
            train(TINY, folder)
        max((folder / "checkpoint").iterdir()).unlink()  # that of the end
        job = Job("again", TINY, folder, unfinished=unfinished)
        train_all([job], Console(quiet=True))
        weights = load(folder).weights
        same = all((weights[name] == undisturbed[name]).all() for name in weights)
        # From the checkpoint other episodes begin; from the start it is the same to the last bit.
        assert same == (unfinished == "restart")


def test_a_folder_is_claimed_before_anything_in_it_is_deleted(tmp_path):
    kept = tmp_path / "run" / "checkpoint" / "of another.safetensors"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"work of hours")
    job = Job("again", TINY, tmp_path / "run", unfinished="restart")
    with claimed(tmp_path / "run"), pytest.raises(ValueError, match="another process is training"):
        do(job)
    assert kept.read_bytes() == b"work of hours"
    assert do(job)["steps"] == TINY.run.steps
    assert not kept.exists()


def _parent(folder):
    endless = jobs(folder, 2, steps=10**6, checkpoint_every=10**9)
    train_all(endless, Console(quiet=True), partial(run_jobs, workers=2))


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _workers_of(parent: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat, open(f"/proc/{name}/cmdline") as command:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) == parent:
                    found += [int(name)] if "spawn_main" in command.read() else []
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.skipif(not os.path.exists("/proc"), reason="looks at processes in /proc")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_workers_do_not_outlive_their_parent(tmp_path, end):
    process = multiprocessing.get_context("spawn").Process(target=_parent, args=(tmp_path,))
    process.start()
    wait_until(lambda: all((tmp_path / str(s) / "metrics.jsonl").exists() for s in range(2)))
    workers = _workers_of(process.pid)
    assert len(workers) == 2
    os.kill(process.pid, end)
    process.join()
    wait_until(lambda: not any(_alive(pid) for pid in workers))
    assert read_result(tmp_path / "0") is None
    saved = [bool(list((tmp_path / str(s)).glob("checkpoint/*"))) for s in range(2)]
    if end == signal.SIGINT:  # asked kindly, they save what they have
        assert saved == [True, True]
