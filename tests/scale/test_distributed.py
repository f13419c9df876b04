"""One training over several actors, in this process: the numbers of a local one in lock step; and
whatever is lost, every file is whole and every transition there once."""

import numpy as np
import pytest

from midstride.disk.runs import checkpoints_in, read_checkpoint, read_metrics
from midstride.envs.faults import Fault
from midstride.learn.agents import Training
from midstride.learn.signals import Interrupted
from midstride.learn.train import train
from midstride.learn.trainer import opened
from midstride.policies import load
from midstride.scale.distributed import Driver, streams_in
from midstride.scale.plan import ScaleSettings, check_spread
from midstride.scale.roles import ROLES, Collector
from tests.scale.virtual import VirtualCluster

TINY = Training.of(
    "pointmass", "qtopt", actions="continuous", steps=96, num_envs=4, hidden_size=8, samples=6,
    rounds=1, acting_rounds=1, batch_size=4, update_every=3, demonstrations=16, offline_updates=4,
    replay_size=64, target_lag=5, evaluate_every=32, evaluation_episodes=2, checkpoint_every=32,
)  # fmt: skip
EVEN = TINY.with_(update_every=2)  # no parts of an update that rounding could lose
# Images, and with them the auxiliary head and what shifts them at random.
SEEN = Training.of(
    "grasp", "qtopt", image_size=16, num_envs=4, scenes=4, steps=32, evaluate_every=16,
    evaluation_episodes=2, checkpoint_every=16, knowledge=("vector_to_go",), hidden_size=8,
    samples=6, rounds=1, batch_size=4, demonstrations=16, auxiliary_updates=200, offline_updates=4,
    replay_size=64, target_lag=3,
)  # fmt: skip
MEASURED = ("steps_per_second", "seconds")  # seconds are not repeated


def spread(training, folder, scale, resume=False, signalled=lambda: None, cluster=None):
    cluster = cluster or VirtualCluster(ROLES)
    driver = Driver(training, scale, opened(training, folder, resume), cluster)
    return driver, driver.train(signalled, keep_checkpoint=True)


def same_lines(folder, other):
    for ours, theirs in zip(read_metrics(folder), read_metrics(other), strict=True):
        names = theirs.keys() - set(MEASURED)
        assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


@pytest.mark.parametrize("name", ["numbers", pytest.param("images", marks=pytest.mark.slow)])
def test_in_lock_step_the_numbers_are_those_of_a_local_training(tmp_path, name):
    training = {"numbers": TINY, "images": SEEN}[name]
    local = train(training, tmp_path / "local", keep_checkpoint=True)
    _, result = spread(training, tmp_path / "spread", ScaleSettings(lock_step=True))
    assert result["returns"] == local["returns"]
    same_lines(tmp_path / "spread", tmp_path / "local")
    weights, expected = load(tmp_path / "spread").weights, load(tmp_path / "local").weights
    for part in expected:
        np.testing.assert_array_equal(weights[part], expected[part])
    found, expected = (
        read_checkpoint(checkpoints_in(tmp_path / folder)[-1])[0] for folder in ("spread", "local")
    )
    for part, array in expected.items():
        kind, _, field = part.partition(".")
        if kind in ("agent", "replay"):  # all that is learned, the optimiser too; all that is held
            ours = found[part if kind == "agent" else f"stream.000000.{field}"]
            np.testing.assert_array_equal(ours, array)


def test_a_signal_saves_and_the_driver_goes_on_from_there(tmp_path):
    scale, folder = ScaleSettings(collectors=2, replays=2, updaters=2), tmp_path / "run"
    cluster = VirtualCluster(ROLES)
    driver = Driver(EVEN, scale, opened(EVEN, folder, False), cluster)
    with pytest.raises(Interrupted, match=r"interrupted: saved .* after \d+ steps"):
        driver.train(lambda: 2 if driver.coordinator.steps >= 40 else None, keep_checkpoint=True)
    assert not any(actor.is_alive for actor in cluster.actors)
    before = driver.coordinator.steps
    arrays, _ = read_checkpoint(checkpoints_in(folder)[-1])
    assert sum(held["counts"][0] for held in streams_in(arrays).values()) * 4 == before < 96
    with pytest.raises(ValueError, match="is of 2 collectors: use --collectors 2"):
        spread(EVEN, folder, ScaleSettings(collectors=3), resume=True)
    with pytest.raises(ValueError, match="is of a training on Ray: go on with --engine ray"):
        train(EVEN, folder, resume=True)
    driver, result = spread(EVEN, folder, scale, resume=True)
    assert result["steps"] == 96
    updates = driver.coordinator.updates
    assert updates == 4 + 96 // 2
    assert [line["steps"] // 32 for line in read_metrics(folder)] == [1, 2, 3]
    line = read_metrics(folder)[-1]
    assert line["replay_ratio"] == pytest.approx(updates / 96, abs=1e-4)
    for name in ("transitions_per_s", "labels_per_s", "label_staleness", "actors_lost"):
        assert line[name] >= 0


def test_only_agents_that_label_apart_are_spread():
    with pytest.raises(ValueError, match="dqn labels and fits in one piece: only qtopt is spread"):
        check_spread(Training.of("pointmass", "dqn"))


def test_other_versions_elsewhere_are_an_error(tmp_path):
    class Elsewhere(Collector):
        def setup(self):
            return {"versions": {**super().setup()["versions"], "jax": "0.0.1"}}

    cluster = VirtualCluster({**ROLES, "collector": Elsewhere})
    with pytest.raises(
        ValueError, match=r"a collector has jax 0\.0\.1, and here it is .* same ver"
    ):
        spread(TINY, tmp_path / "run", ScaleSettings(), cluster=cluster)


def test_a_fault_of_an_environment_is_told_and_what_was_learned_is_saved(tmp_path):
    class Failing(Collector):
        def collect(self, weights, rounds, steps, random):
            if steps >= 16:
                raise Fault("gave the reward nan")
            return super().collect(weights, rounds, steps, random)

    cluster = VirtualCluster({**ROLES, "collector": Failing})
    with pytest.raises(Fault, match=r"gave the reward nan; saved .* after 16 steps"):
        spread(TINY, tmp_path / "run", ScaleSettings(lock_step=True), cluster=cluster)
    assert read_checkpoint(checkpoints_in(tmp_path / "run")[-1])[1]["steps"] == 16
