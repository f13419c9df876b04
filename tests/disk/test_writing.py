"""Files are whole or not there, whatever the disk does and whenever the process is killed."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from attacks import judge, seam
from attacks.counts import Counts
from midstride.disk.files import NOT_WRITTEN, NotWritten, part_of, write_whole
from midstride.disk.runs import read_result
from midstride.learn.agents import Training
from midstride.learn.train import train
from midstride.report.curves import plot_curves, save_figure
from midstride.scale.jobs import Event
from midstride.sweep.disk import FAILURE
from midstride.sweep.engine import run_grid
from midstride.sweep.spec import parse_spec

OLD, NEW = b"what was there", b"what is to be there" * 1000


def calls_of(action):
    with seam.faulty(seam.Counted(seam.killed)) as counted:
        action()
    return counted.calls


def parts_in(folder):
    return list(folder.rglob(f"{judge.PART}*"))


def test_what_is_counted_is_every_call_that_changes_the_disk(tmp_path):
    calls = calls_of(lambda: write_whole(tmp_path / "a" / "file", NEW))
    assert calls == ["mkdir", "fsync", "mkstemp", "write", "fsync", "chmod", "replace", "fsync"]


@pytest.mark.parametrize("error", [*seam.ERRORS, errno.EACCES, errno.ENOMEM])
def test_a_file_is_as_before_or_complete_whichever_call_fails(tmp_path, error):
    path = tmp_path / "file.txt"
    for at in range(1, 7):
        path.write_bytes(OLD)
        with (
            seam.faulty(seam.Counted(seam.failing(error), at)),
            pytest.raises(NotWritten, match=NOT_WRITTEN) as raised,
        ):
            write_whole(path, NEW)
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)
        assert raised.value.errno == error
        assert path.read_bytes() == (NEW if at == 6 else OLD)  # the last is after the rename
        assert [each.name for each in tmp_path.iterdir()] == ["file.txt"]


def test_the_sentence_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    for path, why in {
        tmp_path / "file" / "inside": "a file is where its folder should be",
        tmp_path / ("long" * 100): "give a shorter one",
        tmp_path: "a folder of its name is there",
    }.items():
        with pytest.raises(NotWritten, match=why):
            write_whole(path, "text")
    with (
        seam.faulty(seam.Counted(seam.failing(errno.ENOSPC), 1)),
        pytest.raises(NotWritten, match="the disk is full; free some space there, and go on"),
    ):
        write_whole(tmp_path / "full", "text")


KILLED = """
import os, sys
from pathlib import Path
from attacks import seam
from midstride.disk.files import write_whole
path = Path(sys.argv[1])
for at in range(1, 8):
    path.write_bytes(b"what was there")
    child = os.fork()
    if child == 0:
        seam.install(seam.Counted(seam.killed, at))
        write_whole(path, b"what is to be there" * 1000)
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    parts = [p for p in path.parent.iterdir() if p != path]
    print(ended, len(path.read_bytes()), len(parts))
    write_whole(path.with_name("next"), b"")  # sweeps, once for each process
    seam.files._sweep.cache_clear()
    path.with_name("next").unlink()
    print(len([p for p in path.parent.iterdir() if p != path]))
"""


def test_a_file_is_as_before_or_complete_wherever_the_process_is_killed(tmp_path):
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, check=True
    )
    lines = ended.stdout.splitlines()
    kill, old, new = signal.SIGKILL, len(OLD), len(NEW)
    assert lines[::2] == [
        f"{kill} {old} 0", *[f"{kill} {old} 1"] * 4, f"{kill} {new} 0", f"0 {new} 0",
    ]  # fmt: skip
    assert set(lines[1::2]) == {"0"}  # what was left is swept


def test_parts_are_swept_but_for_those_that_somebody_writes(tmp_path):
    left, held = tmp_path / f"{judge.PART}left.png", tmp_path / f"{judge.PART}held"
    other = tmp_path / ".somebody-elses"
    for path in (left, held, other):
        path.write_text("")
    (tmp_path / f"{judge.PART}link").symlink_to(other)
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_whole(tmp_path / "file", "text")
        assert not left.exists()
        assert held.exists()
        assert other.exists()
        with part_of(tmp_path / "one") as (_, mine):  # ours, while another process sweeps
            code = (
                "import sys; from pathlib import Path; from midstride.disk.files import *\n"
                "write_whole(Path(sys.argv[1]), 'text')"
            )
            subprocess.run([sys.executable, "-c", code, str(tmp_path / "two")], check=True)
            assert mine.exists()
            assert held.exists()
            assert mine.suffix == ""  # who looks for *.safetensors finds whole ones only
    assert (tmp_path / "one").exists()


TINY = Training.of(
    "pointmass", steps=160, num_envs=4, hidden=(8,), learning_starts=40, batch_size=8,
    evaluate_every=40, evaluation_episodes=1, checkpoint_every=40,
)  # fmt: skip


def test_a_training_goes_on_whichever_of_its_writes_failed(tmp_path):
    calls = len(calls_of(lambda: train(TINY, tmp_path / "undisturbed")))
    counts = Counts()
    for k, at in enumerate(np.linspace(2, calls, 5).astype(int)):
        folder = tmp_path / str(at)
        fault = seam.Counted(seam.failing(seam.ERRORS[k % 4]), int(at), lasting=True)
        with seam.faulty(fault), pytest.raises(NotWritten, match=str(folder)):
            train(TINY, folder)
        if folder.exists():
            judge.look(folder, 40, counts)
        train(TINY, folder, resume=True)
        judge.finished(folder, 40, 160, counts)
        assert not parts_in(folder)
    assert counts.notes == []


def test_the_judge_sees_what_is_lost_and_what_is_there_twice(tmp_path):
    train(TINY, tmp_path, keep_checkpoint=True)
    save_figure(tmp_path / "curve.png", plot_curves({"x": [tmp_path]}))
    counts = Counts()
    judge.finished(tmp_path, 40, 160, counts)
    assert counts.total == 0
    for name in ("metrics.jsonl", "result.json", "curve.png", "policy.safetensors"):
        path = tmp_path / name
        whole, counts = path.read_bytes(), Counts()
        path.write_bytes(whole[:-9])
        judge.finished(tmp_path, 40, 160, counts)
        assert counts.troubles["lost"] > 0, name
        path.write_bytes(whole)
    counts, path = Counts(), tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() * 2)
    judge.look(tmp_path, 40, counts)
    assert counts.troubles["doubled"] == 1


def test_a_full_disk_is_no_failure_of_the_trial_that_met_it(tmp_path):
    spec = parse_spec(
        '[common]\ntask = "pointmass"\nsteps = 160\nnum_envs = 4\nlearning_starts = 40\n[arms.one]',
        "s",
    )

    def full(jobs):
        yield Event(0, "started")
        yield Event(0, "error", f"{jobs[0].folder / 'config.json'} {NOT_WRITTEN}: the disk is full")

    with pytest.raises(OSError, match=r"config\.json could not be written: the disk is full"):
        run_grid(spec, 1, tmp_path, full, Console(quiet=True))
    assert not list(tmp_path.rglob(FAILURE))
    assert all(read_result(path.parent) is None for path in tmp_path.rglob("config.json"))


FILMED = """
import resource, sys
from pathlib import Path
import numpy as np
from midstride.report.film import save_video
frames = np.random.default_rng(0).integers(0, 256, (40, 64, 64, 3), dtype=np.uint8)
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
try:
    save_video(Path(sys.argv[1]), frames, 25.0)
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize(("limit", "fits"), [(20_000, False), (10_000_000, True)])
def test_a_film_that_does_not_fit_is_not_there(tmp_path, limit, fits):
    """The limit is on the size of files: ffmpeg meets it as it meets the end of a disk."""
    path = tmp_path / "film.mp4"
    ended = subprocess.run(
        [sys.executable, "-c", FILMED, str(path), str(limit)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert path.exists() == fits
    assert ("film.mp4 could not be written" in ended.stdout) == (not fits)
    assert not parts_in(tmp_path)
    if fits:
        assert judge._is_whole(path)
    assert {each.name for each in tmp_path.iterdir()} <= {Path(path).name}
