"""One training on a real Ray cluster: the same numbers in lock step, actors and nodes killed at
random, Ctrl-C. Minutes each: most of it is processes that start."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from midstride.disk.runs import checkpoints_in, read_checkpoint, read_metrics, read_result
from midstride.learn.train import train
from midstride.learn.trainer import opened
from midstride.policies import load
from midstride.scale.distributed import Driver, streams_in, train_on_ray
from midstride.scale.plan import ScaleSettings
from tests.helpers import wait_until
from tests.scale.test_distributed import EVEN, TINY, same_lines

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray"),
]


def test_in_lock_step_on_ray_the_numbers_are_those_of_a_local_training(tmp_path):
    scale = ScaleSettings(lock_step=True, cores=0.1)
    result = train_on_ray(TINY, tmp_path / "ray", scale)
    local = train(TINY, tmp_path / "local")
    assert result["returns"] == local["returns"]
    same_lines(tmp_path / "ray", tmp_path / "local")
    weights, expected = load(tmp_path / "ray").weights, load(tmp_path / "local").weights
    for part in expected:
        np.testing.assert_array_equal(weights[part], expected[part])


def check_run(folder, training, driver):
    """Nothing is doubled, nothing that was finished is lost, every checkpoint loads."""
    steps = training.run.steps
    assert read_result(folder)["steps"] == steps == driver.books.steps
    assert driver.books.updates == 4 + steps // 2
    every = training.run.evaluate_every
    lines = [line["steps"] // every for line in read_metrics(folder)]
    assert lines == list(range(1, steps // every + 1))
    for path in checkpoints_in(folder):
        arrays, about = read_checkpoint(path)
        held = [stream["counts"][0] for stream in streams_in(arrays).values()]
        assert sum(held) * training.run.num_envs <= about["steps"]
    load(folder)


def test_actors_are_killed_at_random_and_the_run_goes_on(tmp_path):
    from midstride.scale.actors import RayCluster
    from midstride.scale.ray import connected

    training = EVEN.with_(steps=384, evaluate_every=96, checkpoint_every=96)
    rng, killed = np.random.default_rng(0), []
    kills = int(os.environ.get("MIDSTRIDE_KILLS", 5))

    def kill():
        """At any event, once so many steps have arrived: the kills are spread over the run."""
        members = [one for role in driver.coordinator.members.values() for one in role]
        due = training.run.steps * (len(killed) + 1) / (kills + 1)
        if len(killed) < kills and driver.books.steps >= due:
            member = members[int(rng.integers(len(members)))]
            if member.is_ready and member.name not in killed:
                killed.append(member.name)
                driver.coordinator.crew.cluster.stop(member.actor)  # at whatever it is doing

    with connected(None):
        scale = ScaleSettings(collectors=2, updaters=2, fitters=2, cores=0.1, keep_every=2)
        run = opened(training, tmp_path / "run", False)
        driver = Driver(training, scale, run, RayCluster(0.1))
        driver.tell = kill
        driver.train(lambda: None, keep_checkpoint=True)
    assert len(killed) == kills
    assert driver.books.counts["actors_lost"] >= kills - 2  # the last may not be missed
    check_run(tmp_path / "run", training, driver)


def test_nodes_come_and_go(tmp_path):
    """Several nodes without a shared disk; one is killed with all that it holds, one joins."""
    from midstride.scale import ray as ours

    ours._close_doors(starts=True)
    import ray
    from ray.cluster_utils import Cluster

    from midstride.scale.actors import RayCluster

    training = EVEN.with_(steps=384, evaluate_every=96, checkpoint_every=96)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    more = [nodes.add_node(num_cpus=1), nodes.add_node(num_cpus=1)]
    done = []

    def disturb(progress):
        if progress.phase == "online" and progress.steps > 96 * (1 + len(done)) and len(done) < 2:
            done.append(progress.steps)
            if len(done) == 1:
                nodes.remove_node(more.pop(), allow_graceful=False)
            else:
                more.append(nodes.add_node(num_cpus=1))

    try:
        ray.init(address=nodes.address, log_to_driver=False)
        scale = ScaleSettings(collectors=2, updaters=2, cores=0.3)
        run = opened(training, tmp_path / "run", False)
        driver = Driver(training, scale, run, RayCluster(0.3), disturb)
        driver.train(lambda: None, keep_checkpoint=True)
    finally:
        ray.shutdown()
        nodes.shutdown()
    assert len(done) == 2
    check_run(tmp_path / "run", training, driver)


@pytest.mark.skipif(not os.path.exists("/proc"), reason="looks at processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_leave_no_process_and_the_run_can_be_gone_on_with(tmp_path, number):
    mark = f"midstride-test-{os.getpid()}-{time.time_ns()}"
    options = " ".join(
        f"--{name.replace('_', '-')} {TINY[name]}"
        for name in ("hidden_size", "samples", "rounds", "acting_rounds", "batch_size")
    )
    words = (
        f"train pointmass qtopt --actions continuous {options} --num-envs 4 --steps 10_000_000 "
        f"--demonstrations 16 --offline-updates 4 --checkpoint-every 16 --evaluate-every 1_000_000 "
        f"--no-video --name run --runs {tmp_path} --engine ray --cores 0.1"
    ).split()
    process = subprocess.Popen(
        [sys.executable, "-m", "midstride", *words],
        env={**os.environ, "MIDSTRIDE_TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: process.poll() is not None or checkpoints_in(tmp_path / "run"), 600)
    os.kill(process.pid, number)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    if number != signal.SIGKILL:
        assert "--engine ray --collectors 1" in said
    read_checkpoint(checkpoints_in(tmp_path / "run")[-1])
    wait_until(lambda: not _marked(mark), 120)


def _marked(mark):
    """Processes that have a mark in their environment, as all that a program starts do."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ") as file:
                if mark in file.read():
                    found.append(int(name))
        except OSError:
            continue
    return found
