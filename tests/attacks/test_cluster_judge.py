"""What the attack on a cluster counts: each kind of harm is seen, and a sound run has none."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from attacks.cluster import TRAININGS
from attacks.cluster_judge import Seen, finished, unique, watch
from attacks.cluster_result import table
from attacks.counts import Counts
from attacks.nodes import Process, left_after, open_below
from midstride.learn.agents import Training
from midstride.learn.trainer import opened
from midstride.scale.distributed import Driver
from midstride.scale.plan import ScaleSettings
from midstride.scale.roles import ROLES
from tests.scale.test_distributed import SMALL
from tests.scale.virtual import VirtualCluster

# Its steps are never the same, unlike those of a point that rests at the edge.
DQN = Training.of("gym:InvertedPendulum-v5", "dqn", **SMALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    scale = ScaleSettings(collectors=2)
    driver = Driver(DQN, scale, opened(DQN, folder, False), VirtualCluster(ROLES))
    driver.train(lambda: None, keep_checkpoint=True)
    return folder


def judged(folder, steps=96, every=32):
    counts = Counts()
    finished(folder, steps, every, Seen(), counts)
    return {kind: count for kind, count in counts.troubles.items() if count}


def test_a_sound_run_has_no_harm(run):
    counts, seen = Counts(), Seen()
    watch(run, seen, counts)
    assert seen.steps == 96
    assert judged(run) == {}


def test_other_steps_and_evaluations_are_seen(run, tmp_path):
    assert judged(run, steps=128) == {"lost": 2}  # steps, and an evaluation
    assert judged(run, steps=64) == {"doubled": 1, "lost": 1}
    lines = (run / "metrics.jsonl").read_text()
    try:
        (run / "metrics.jsonl").write_text(lines + lines.splitlines()[-1] + "\n")
        assert judged(run) == {"doubled": 1}
    finally:
        (run / "metrics.jsonl").write_text(lines)


def test_a_transition_that_is_there_twice_is_seen():
    rows = np.arange(24.0).reshape(3, 2, 4)
    held = {"stream.000000.transitions": rows, "stream.000001.transitions": rows + 100}
    counts = Counts()
    unique(held, 12, "here", counts)
    assert counts.total == 0
    unique({**held, "stream.000001.transitions": rows[:1]}, 12, "here", counts)
    assert counts.troubles["doubled"] == 2
    unique(held, 8, "here", counts)  # more than were taken
    assert counts.troubles["doubled"] == 3


def test_a_checkpoint_that_does_not_load_and_one_that_goes_back_are_seen(tmp_path, run):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "checkpoint-000000000001.safetensors").write_bytes(b"nothing")
    counts, seen = Counts(), Seen()
    watch(tmp_path, seen, counts)
    assert counts.troubles["lost"] == 1
    counts, seen = Counts(), Seen(steps=1000)
    watch(run, seen, counts)
    assert counts.troubles["lost"] >= 1


def test_processes_that_stay_and_files_that_are_open_are_seen(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, cwd=tmp_path)
    with open(f"/proc/{process.pid}/stat") as file:
        started = file.read().rpartition(")")[2].split()[19]
    mine = Process(process.pid, started)
    assert left_after({mine}, 0.1) == [mine]
    assert open_below(mine, tmp_path) == [os.path.realpath(tmp_path)]
    assert open_below(mine, tmp_path / "other") == []
    process.kill()
    process.wait()
    assert left_after({mine}, 5) == []


def test_the_table_has_a_line_for_each_agent():
    found = {f"training of {name}": Counts(tries=3, of_which={"node": 1}) for name in TRAININGS}
    lines = table(dict.fromkeys(TRAININGS, 2), found).splitlines()
    assert lines[2] == "| training of qtopt | 2 | 3 | 0 | 0 | 0 | 0 | 0 | 0 |"
    assert lines[-1] == "| node | 3 |"


@pytest.mark.slow
def test_a_short_attack_does_no_harm(tmp_path):
    command = [sys.executable, "-m", "attacks.cluster", "--kills", "8", "--minutes", "5"]
    ended = subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert json.loads((tmp_path / "kills.json").read_text())["kills"] == 8
