"""One training over several actors, in this process: the numbers of a local one in lock step; and
whatever is lost, every file is whole and every transition there once."""

import io

import numpy as np
import pytest
from rich.console import Console

from midstride.disk.runs import checkpoints_in, read_checkpoint, read_metrics
from midstride.envs.faults import Fault
from midstride.learn.agents import Training
from midstride.learn.signals import Interrupted
from midstride.learn.train import train
from midstride.learn.trainer import opened
from midstride.policies import load
from midstride.report.machines import plot_machines
from midstride.scale.distributed import Driver, streams_in
from midstride.scale.plan import ScaleSettings, check_spread
from midstride.scale.roles import ROLES, Collector, Fitter, Memory, Updater
from midstride.scale.show import spread_table
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
SMALL = {
    "steps": 96, "num_envs": 4, "hidden": (8,), "batch_size": 4, "update_every": 3,
    "learning_starts": 18, "replay_size": 64, "evaluate_every": 32, "evaluation_episodes": 2,
    "checkpoint_every": 32,
}  # fmt: skip
SAC = Training.of("pointmass", "sac", actions="continuous", **SMALL)
DQN = Training.of("pointmass", "dqn", n_step=2, **SMALL)
MEASURED = ("steps_per_second", "seconds")  # seconds are not repeated


def spread(training, folder, scale, resume=False, signalled=lambda: None, cluster=None):
    cluster = cluster or VirtualCluster(ROLES)
    driver = Driver(training, scale, opened(training, folder, resume), cluster)
    return driver, driver.train(signalled, keep_checkpoint=True)


def same_lines(folder, other):
    for ours, theirs in zip(read_metrics(folder), read_metrics(other), strict=True):
        names = theirs.keys() - set(MEASURED)
        assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


# Rounds that call for no update, too: 4 steps each, an update every 6.
LOCK_STEP = {
    "numbers": TINY, "images": SEEN, "sac": SAC, "dqn": DQN, "sac-slow": SAC.with_(update_every=6),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "images")) for n in LOCK_STEP]
)
def test_in_lock_step_the_numbers_are_those_of_a_local_training(tmp_path, name):
    training = LOCK_STEP[name]
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
        if part == "normal":
            np.testing.assert_array_equal(found["memory.000000.normal"], array)
        if kind in ("agent", "replay"):  # all that is learned, the optimiser too; all that is held
            ours = found[part if kind == "agent" else f"stream.000000.{field}"]
            np.testing.assert_array_equal(ours, array)


def test_a_signal_saves_and_the_driver_goes_on_from_there(tmp_path):
    scale, folder = ScaleSettings(collectors=2, replays=2, updaters=2), tmp_path / "run"
    cluster = VirtualCluster(ROLES)
    driver = Driver(EVEN, scale, opened(EVEN, folder, False), cluster)
    with pytest.raises(Interrupted, match=r"interrupted: saved .* after \d+ steps"):
        driver.train(lambda: 2 if driver.books.steps >= 40 else None, keep_checkpoint=True)
    assert not any(actor.is_alive for actor in cluster.actors)
    before = driver.books.steps
    arrays, _ = read_checkpoint(checkpoints_in(folder)[-1])
    assert sum(held["counts"][0] for held in streams_in(arrays).values()) * 4 == before < 96
    with pytest.raises(ValueError, match="is of 2 collectors: use --collectors 2"):
        spread(EVEN, folder, ScaleSettings(collectors=3), resume=True)
    with pytest.raises(ValueError, match="is of a training on Ray: go on with --engine ray"):
        train(EVEN, folder, resume=True)
    driver, result = spread(EVEN, folder, scale, resume=True)
    assert result["steps"] == 96
    updates = driver.books.updates
    assert updates == 4 + 96 // 2
    assert [line["steps"] // 32 for line in read_metrics(folder)] == [1, 2, 3]
    line = read_metrics(folder)[-1]
    assert line["replay_ratio"] == pytest.approx(updates / 96, abs=1e-4)
    for name in ("transitions_per_s", "labels_per_s", "label_staleness", "actors_lost"):
        assert line[name] >= 0


@pytest.mark.parametrize("training", [TINY, SAC, DQN], ids=["qtopt", "sac", "dqn"])
def test_several_fitters_take_the_updates_of_one(tmp_path, training):
    """Blocks, labels and parts come from the same memory and updater; gradients are averaged."""
    memory = Memory(training, (0,), 64, (0, 0, 0))
    values = memory.setup()["values"]
    collector = Collector(training, (0, 0))
    collector.setup()
    one = Fitter(training, values)
    one.setup()
    _, acting, judging = one.publish()
    _, steps = collector.collect(acting, None, 8, 0, None)
    memory.add(0, 0, 0, steps)
    check_same_update(training, memory, one, values, judging)


def check_same_update(training, memory, one, values, judging, updates=3):
    random = memory.agent.rng.bit_generator.state
    _, judged, whole = memory.sample(updates, random)
    _, _, *parts = memory.sample(updates, random, 2)
    labels, keys = None, (None, None)
    if judged:
        updater = Updater(training, values)
        updater.setup()
        record, labels = updater.label(judged, judging, np.zeros(2, np.uint32))
        keys = np.ones(2, np.uint32), record["fit_key"]
    several = [Fitter(training, values, place, 2) for place in range(2)]
    for fitter in several:
        fitter.setup()
        fitter.restore(one.state()[1])
    before = one.state()[1]
    measured = one.fit(whole, labels, *keys)[0]["measured"]
    found = [f.begin(part, labels, *keys)[1] for f, part in zip(several, parts, strict=True)]
    for _ in range(updates - 1):
        found = [fitter.step(*found)[1] for fitter in several]
    ends = [fitter.end(*found)[0] for fitter in several]
    assert ends[0]["updates"] == updates == one.publish()[0]["updates"]
    expected, (first, second) = one.state()[1], (fitter.state()[1] for fitter in several)
    assert any((a != b).any() for a, b in zip(expected, before, strict=True))
    for ours, theirs, its in zip(first, second, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)  # they stay in step to the last bit
        np.testing.assert_allclose(ours, its, rtol=2e-4, atol=2e-6)
    for name in measured:
        if name != "label":  # of a block, or of batches
            mean = np.mean([end["measured"][name] for end in ends])
            assert mean == pytest.approx(measured[name], rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_several_fitters_shift_images_as_one_does():
    training = SEEN.with_(colour=0.2, auxiliary_updates=0)
    memory = Memory(training, (0,), 64, (0, 0, 0))
    values = memory.setup()["values"]
    one = Fitter(training, values)
    one.setup()
    check_same_update(training, memory, one, values, one.publish()[2])


def test_a_part_is_not_another_part():
    """The test above can fail: parts that are exchanged give other gradients."""
    memory = Memory(SAC, (0,), 64, (0, 0, 0))
    values = memory.setup()["values"]
    collector = Collector(SAC, (0, 0))
    collector.setup()
    several = [Fitter(SAC, values, place, 2) for place in range(2)]
    for fitter in several:
        fitter.setup()
    _, steps = collector.collect(several[0].publish()[1], None, 8, 0, None)
    memory.add(0, 0, 0, steps)
    _, _, part, _ = memory.sample(1, None, 2)
    gradients = [fitter.begin(part, None, None, None)[1] for fitter in several]
    assert np.abs(gradients[0] - gradients[1]).max() > 1e-3  # other rows of the noise


@pytest.mark.parametrize("training", [EVEN, SAC.with_(update_every=2)], ids=["qtopt", "sac"])
def test_with_several_of_each_the_run_ends_as_asked(tmp_path, training):
    scale = ScaleSettings(collectors=2, updaters=1, fitters=2)
    driver, result = spread(training, tmp_path / "run", scale)
    assert result["steps"] == 96
    called = 4 + 96 // 2 if training is EVEN else (96 - 16) // 2
    assert driver.books.updates == called == driver.books.counts["updates"]
    line = read_metrics(tmp_path / "run")[-1]
    assert (line["fitters_in_step"], line["times_gone_back"]) == (2, 0)
    assert {"loss", "q"} <= line.keys()
    drawn = {
        line.get_label() for axes in plot_machines(tmp_path / "run").axes for line in axes.lines
    }
    assert {"fitters_in_step", "updates_per_s", "policy_staleness"} <= drawn
    load(tmp_path / "run")


def test_the_live_table_tells_of_fitters(tmp_path):
    shown = []
    cluster, scale = VirtualCluster(ROLES), ScaleSettings(fitters=2)
    training = EVEN.with_(steps=8)
    driver = Driver(training, scale, opened(training, tmp_path, False), cluster, shown.append)
    driver.train(lambda: None, keep_checkpoint=False)
    driver._told = 0.0
    driver.tell()
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(spread_table("run", shown[-1]))
    said = console.export_text()
    assert "2 in step, 0 busy; went back 0 times" in said
    assert "fitter 2/2" in said


@pytest.mark.parametrize(
    ("training", "scale", "said"),
    [
        (Training.of("pointmass", "ppo", actions="continuous"), {}, "ppo is not spread over mach"),
        (Training.of("pointmass", "drqn"), {}, "drqn is not spread .* qtopt, sac, dqn are"),
        (DQN, {"updaters": 2}, r"dqn labels where it fits: leave out updaters \(2\)"),
        (DQN.with_(n_step=1, prioritised=True), {}, "prioritised sampling needs the errors"),
        (SAC, {"replays": 2, "collectors": 2}, "sac normalises by what all collectors saw"),
        (SAC, {"fitters": 3}, "batch_size is 4: use 2 fitters, or a batch_size of 6"),
        (TINY, {"fitters": 8}, "batch_size is 4: use 4 fitters, or a batch_size of 8"),
    ],
)
def test_what_cannot_be_spread_is_refused(training, scale, said):
    with pytest.raises(ValueError, match=said):
        check_spread(training, ScaleSettings(**scale))


def test_too_few_cores_are_told_with_the_share_that_fits():
    with pytest.raises(ValueError, match=r"1 updater\(s\), 2 .*, 1 fit.* need 4 cores.* 0\.5"):
        ScaleSettings(collectors=2).check_cores(2, TINY)
    with pytest.raises(ValueError, match=r"1 collector\(s\), 2 fitter\(s\) at 1 .* need 3 cores"):
        ScaleSettings(fitters=2).check_cores(2, SAC)  # no updaters


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
        def collect(self, weights, seen, rounds, steps, random):
            if steps >= 16:
                raise Fault("gave the reward nan")
            return super().collect(weights, seen, rounds, steps, random)

    cluster = VirtualCluster({**ROLES, "collector": Failing})
    with pytest.raises(Fault, match=r"gave the reward nan; saved .* after 16 steps"):
        spread(TINY, tmp_path / "run", ScaleSettings(lock_step=True), cluster=cluster)
    assert read_checkpoint(checkpoints_in(tmp_path / "run")[-1])[1]["steps"] == 16
