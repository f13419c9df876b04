"""Signals that ask a training to end: it saves first, and the exit code says which it was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from midstride.cli import main
from midstride.disk.runs import Run, read_metrics
from midstride.learn.agents import Training
from midstride.learn.dqn import DQN
from midstride.learn.signals import Interrupted, held_interrupts, interrupt, raised_signals, word
from midstride.learn.train import train
from tests.helpers import wait_until

TINY = (
    "--steps", "1000000", "--num-envs", "4", "--hidden", "16", "--batch-size", "16",
    "--learning-starts", "100", "--evaluate-every", "400", "--evaluation-episodes", "1",
    "--checkpoint-every", "100000000", "--latency", "50ms", "--no-video",
)  # fmt: skip
ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _usual_handlers():
    """As a program has them at its start, whoever runs the tests."""
    before = {number: signal.getsignal(number) for number in ENDING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_training_here_saves_and_says_which_signal_it_was(tmp_path, monkeypatch, number):
    """In somebody's own program too, where nobody has prepared anything."""
    own, count = DQN.dispatch, 0

    def dispatch(self, batches, lap=None):
        nonlocal count
        count += 1
        own(self, batches, lap)
        if count == 3:
            signal.raise_signal(number)

    monkeypatch.setattr(DQN, "dispatch", dispatch)
    config = Training.of(
        "pointmass", steps=800, num_envs=4, hidden=(8,), learning_starts=100, batch_size=8,
        checkpoint_every=10**9,
    )  # fmt: skip
    with pytest.raises(Interrupted, match=rf"{word(number)}: saved .*run after \d+ steps") as end:
        train(config, tmp_path / "run")
    assert end.value.number == number
    saved = Run.open(tmp_path / "run").load_checkpoint()
    assert saved is not None
    assert saved[1]["steps"] < 800
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_second_sigterm_is_held_and_a_second_ctrl_c_is_not():
    """A scheduler tells the whole group, and the parent tells its workers: twice means once."""
    with held_interrupts() as signalled:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert signalled() == signal.SIGTERM
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)


def test_what_is_ignored_or_somebody_elses_is_let_be():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    told = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    with raised_signals(), held_interrupts() as signalled:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        assert signalled() is None
    assert told == [signal.SIGTERM]
    with pytest.raises(Interrupted), raised_signals():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", ENDING)
def test_a_command_ends_with_128_and_the_signals_number(capsys, monkeypatch, number):
    monkeypatch.setattr("midstride.cli._run", lambda args: signal.raise_signal(number))
    with pytest.raises(SystemExit) as end:
        main(["describe"])
    assert end.value.code == 128 + number
    assert capsys.readouterr().err == f"midstride: {word(number)}\n"
    assert interrupt is not signal.getsignal(number)


def started(folder: Path, *args: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "midstride", "train", "pointmass", "dqn", *TINY, *args]
    return subprocess.Popen(
        [*command, "--runs", str(folder), "--name", "run"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_command_saves_when_it_is_told_to_end(tmp_path, number):
    process = started(tmp_path)
    try:
        wait_until(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert said.count("\n") == 1
    assert said.startswith(f"midstride: {word(number)}: saved {tmp_path / 'run'} after ")
    assert f"go on with: midstride train --resume {tmp_path / 'run'}" in said
    (checkpoint,) = (tmp_path / "run" / "checkpoint").iterdir()
    assert f"{int(checkpoint.stem):,} steps" in said


@pytest.mark.parametrize("whom", [pytest.param("parent", marks=pytest.mark.slow), "group"])
def test_workers_save_when_the_command_is_told_to_end(tmp_path, whom):
    """Docker tells the first process only, Slurm all of them at once."""
    process = started(tmp_path, "--seeds", "2")
    try:
        wait_until(
            lambda: all((tmp_path / "run" / f"seed{s}/metrics.jsonl").exists() for s in range(2))
        )
        tell = process.send_signal if whom == "parent" else lambda n: os.killpg(process.pid, n)
        tell(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 143
    assert "Traceback" not in said
    assert "midstride: ended by SIGTERM: what was under way is saved in" in said
    for seed in range(2):
        folder = tmp_path / "run" / f"seed{seed}"
        steps = [line["steps"] for line in read_metrics(folder)]
        saved = Run.open(folder).load_checkpoint()
        assert saved is not None
        assert saved[1]["steps"] >= max(steps)
