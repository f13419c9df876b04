"""Training: it learns, repeats, survives being killed, and says clearly what is wrong."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import midstride
from midstride.disk import files
from midstride.disk.runs import Run, claimed, read_metrics, read_result
from midstride.envs.vector import interact
from midstride.learn.agents import Training
from midstride.learn.dqn import DQN
from midstride.learn.signals import held_interrupts
from midstride.learn.train import train
from midstride.learn.trainer import Trainer
from midstride.measure.evaluate import evaluate, evaluate_in
from midstride.measure.statistics import interval, share_interval
from midstride.policies import QPolicy
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.registry import environment_from

SETTINGS = {
    "steps": 1600, "num_envs": 4, "hidden": (16,), "batch_size": 16, "learning_starts": 200,
    "evaluate_every": 400, "evaluation_episodes": 2, "checkpoint_every": 400, "replay_size": 2000,
    "latency": "50ms", "knowledge": ("vector_to_go",),
}  # fmt: skip
RECURRENT = {"lstm_size": 8, "segment": 5, "burn_in": 2}


def tiny(agent="dqn", task="pointmass", **options):
    own = RECURRENT if agent == "drqn" else {}
    return Training.of(task, agent, **{**SETTINGS, **own, **options})


TINY = tiny()


@pytest.mark.parametrize("agent", ["dqn", "drqn"])
def test_a_run_leaves_everything_in_its_folder(tmp_path, agent):
    result = train(tiny(agent), tmp_path / "run")
    found = {path.name for path in (tmp_path / "run").iterdir()}
    assert found == {
        "config.json", "metrics.jsonl", "result.json", "policy.json", "policy.safetensors",
    }  # fmt: skip
    assert [line["steps"] for line in read_metrics(tmp_path / "run")] == [400, 800, 1200, 1600]
    assert result["returns"] == read_result(tmp_path / "run")["returns"]
    assert len(result["returns"]) == 8
    policy = midstride.load(tmp_path / "run")
    assert policy.description["columns"] == ["x", "y", "goal_x", "goal_y", "vector_to_go:x",
                                             "vector_to_go:y"]  # fmt: skip
    again = evaluate_in(policy, environment_from(policy.description["environment"]), 8)
    assert [episode.total for episode in again] == result["returns"]


@pytest.mark.parametrize("agent", ["dqn", "drqn"])
def test_one_seed_repeats_to_the_last_bit_and_two_differ(tmp_path, agent):
    config = tiny(agent, steps=800)
    results = [train(config, tmp_path / str(i)) for i in range(2)]
    assert results[0]["returns"] == results[1]["returns"]
    weights = [midstride.load(tmp_path / str(i)).weights for i in range(2)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    other = train(config.with_(seed=1), tmp_path / "other")
    assert other["returns"] != results[0]["returns"]


@pytest.mark.parametrize(
    "options",
    [
        {"target": "concurrent"},
        {"dueling": True, "n_step": 3},
        {"prioritised": True, "n_step": 2},
        {"target_every": 20},
        {"task": "gym:InvertedPendulum-v5", "latency": "20ms", "knowledge": ("previous_action",)},
        {
            "task": "gym:InvertedPendulum-v5",
            "latency": "20ms",
            "knowledge": (),
            "target": "concurrent",
        },
        {"actions": "continuous"},
        {"task": "dmc:cartpole/balance", "latency": "10ms", "knowledge": ("selection_time",)},
        {"agent": "drqn", "target": "concurrent"},
        {"latency": "episode:0,25ms,50ms"},
    ],
    ids=lambda o: "-".join(map(str, o)),
)
def test_every_option_trains(tmp_path, options):
    config = tiny(**{"steps": 480, "evaluate_every": 480, "evaluation_episodes": 1, **options})
    result = train(config, tmp_path / "run")
    assert np.isfinite(result["returns"]).all()
    assert np.isfinite(read_metrics(tmp_path / "run")[0]["loss"])


def test_the_loop_gives_true_last_observations():
    """Of our environments and of Gymnasium's: what a step leads to, not what a reset gives."""
    for task, action in (
        ("pointmass", np.zeros(2, int)),
        ("gym:InvertedPendulum-v5", np.ones((2, 1))),
    ):
        envs = tiny(task=task, latency="0", knowledge=()).environment.make(2)
        ended = 0
        following, done = None, None
        act = lambda o, action=action: (action, {"here": o})  # noqa: E731
        for i, step in enumerate(interact(envs, act, 0, lambda which: None)):
            if following is not None:
                same = (step.observation_capture == following).all(axis=1)
                assert (same == ~done).all()
            assert step.notes["here"] is step.observation_capture
            assert step.observation_switch is None
            following, done = step.observation_next, step.done
            assert (step.period_s > 0).all()
            ended += int(done.sum())
            if i == 60:
                break
        assert ended > 0


def a_policy():
    columns = TINY.environment.make(1).single_observation_space.shape[0]
    weights = {
        "head.advantage.weight": np.zeros((5, columns)),
        "head.advantage.bias": np.arange(5.0),
    }
    return QPolicy(weights)


def test_evaluation_is_fair_and_repeats():
    environment = TINY.environment
    episodes = evaluate(a_policy(), environment.make(2), 5)
    assert len(episodes) == 5
    assert all(episode.seconds == pytest.approx(5) for episode in episodes)
    assert all(episode.latency_s == pytest.approx(0.05) for episode in episodes)
    assert episodes == evaluate(a_policy(), environment.make(2), 5)
    at_zero = evaluate(a_policy(), tiny(latency=0.0).environment.make(2), 2)
    assert all(episode.latency_s == 0 for episode in at_zero)


def test_any_callable_with_a_size_can_be_evaluated():
    """Nothing but `policy(observations) -> actions` is asked of who acts."""

    class Always:
        observation_size = 6

        def __call__(self, observations):
            return np.full(len(observations), 4)

        def reset(self, which=None):
            pass

    envs = TINY.environment.make(2)
    assert evaluate(Always(), envs, 3) == evaluate(a_policy(), TINY.environment.make(2), 3)


def test_environments_must_reset_in_the_same_step():
    envs = TaskVectorEnv(TINY.environment, 2, autoreset_mode="NextStep")
    with pytest.raises(ValueError, match="must reset in the same step"):
        evaluate(a_policy(), envs, 2)


def test_a_policys_file_says_what_its_numbers_are_in_units_of(tmp_path):
    train(tiny(steps=400), tmp_path / "run")
    units = midstride.load(tmp_path / "run").description["units"]
    assert units == {
        "selection_time_s": 0.05, "vector_to_go": [0.3, 0.3], "previous_action": "one-hot"
    }  # fmt: skip


def test_interval_holds_the_mean():
    low, high = interval(np.random.default_rng(0).normal(10, 1, 50))
    assert 9 < low < 10 < high < 11
    assert interval([3.0, 3.0]) == (3.0, 3.0)


@pytest.mark.filterwarnings("error")
def test_an_interval_of_what_differs_by_rounding_is_of_numbers():
    """A result is strict JSON: it could not be written otherwise."""
    for values in ([0.1] * 7 + [np.nextafter(0.1, 1)], [0.0, 1e-300], [1e300, -1e300]):
        low, high = interval(values)
        assert np.isfinite([low, high]).all()
        assert low <= np.mean(values) <= high


def test_tensorboard_has_the_metrics(tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    train(TINY, tmp_path / "run", tensorboard=True)
    (path,) = (tmp_path / "run").glob("events.out.tfevents*")
    data, found = path.read_bytes(), {}
    while data:  # records: length, its checksum, an event, its checksum
        length = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + length])
        for value in event.summary.value:
            found[value.tag, event.step] = value.simple_value
        data = data[16 + length :]
    for line in read_metrics(tmp_path / "run"):
        for name in ("evaluation", "epsilon", "loss"):
            assert found[name, line["steps"]] == pytest.approx(line[name])


def test_tensorboard_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"midstride\[tensorboard\]"):
        train(TINY, tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


# --- Nothing lost


def _train_in_process(config: Training, folder: Path) -> None:
    train(config, folder, resume=True)


def test_killed_and_resumed(tmp_path):
    """kill -9 at several moments; each time it goes on, and in the end it has finished."""
    config = tiny(steps=4000, checkpoint_every=200, evaluate_every=2000)
    context = multiprocessing.get_context("spawn")
    rng = np.random.default_rng(0)
    kills = 0
    for _ in range(5):
        process = context.Process(target=_train_in_process, args=(config, tmp_path / "run"))
        process.start()
        checkpoints = tmp_path / "run" / "checkpoint"
        before = sorted(checkpoints.glob("*")) if checkpoints.exists() else []
        while process.is_alive():  # until it has got further than before, then some
            now = sorted(checkpoints.glob("*.safetensors")) if checkpoints.exists() else []
            if now and now != before and kills < 3:
                time.sleep(float(rng.uniform(0, 0.1)))
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.01)
        process.join()
        if read_result(tmp_path / "run") is not None:
            break
    assert kills == 3
    result = read_result(tmp_path / "run")
    assert result is not None
    assert result["steps"] == 4000
    steps = [line["steps"] for line in read_metrics(tmp_path / "run")]
    assert steps == [2000, 4000]
    midstride.load(tmp_path / "run")


@pytest.mark.slow
def test_twenty_kills_cost_no_quality(tmp_path):
    """kill -9 at random moments, wherever it is then: the run ends as good as an undisturbed one.

    They are not the same to the last bit: after a resume the environments start new episodes.
    """
    config = Training.of("cartpole", period="50ms", checkpoint_every=2_000)
    undisturbed = train(config, tmp_path / "undisturbed")
    context = multiprocessing.get_context("spawn")
    rng = np.random.default_rng(0)
    kills = 0
    while read_result(tmp_path / "run") is None:
        process = context.Process(target=_train_in_process, args=(config, tmp_path / "run"))
        process.start()
        process.join(float(rng.uniform(1, 15)) if kills < 25 else None)
        if process.is_alive():
            process.kill()
            kills += 1
        else:
            assert process.exitcode == 0
        process.join()
    assert kills >= 20
    result = train(config, tmp_path / "run", resume=True)
    assert result["steps"] == config.run.steps
    assert result["mean_return"] > 0.9 * undisturbed["mean_return"] > 600


def interrupted(folder: Path, config: Training = TINY) -> Run:
    """A run with checkpoints that ended just before its end."""
    with patch.object(Run, "finish"):
        train(config, folder)
    return Run.open(folder)


def test_resuming_goes_on_from_the_checkpoint(tmp_path):
    run = interrupted(tmp_path / "run")
    max((tmp_path / "run" / "checkpoint").iterdir()).unlink()  # that of the end
    trainer = Trainer.create(TINY)
    trainer.restore(run)
    assert trainer.steps == 1200
    replay = trainer.agent.replay
    assert replay.added == 300
    assert (replay.row.unpack(replay.data["transitions"][:300])["action"] > 0).any()
    assert int(trainer.agent.state["updates"]) > 200
    result = train(TINY, tmp_path / "run", resume=True)
    assert result["steps"] == 1600


def test_a_finished_run_is_not_run_again(tmp_path):
    result = train(TINY, tmp_path / "run")
    stamp = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    assert train(TINY, tmp_path / "run", resume=True)["returns"] == result["returns"]
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("update", [1, 10])
def test_ctrl_c_saves(tmp_path, monkeypatch, update):
    """Also in the middle of an update; and it says what it saved."""
    count, own = 0, DQN.dispatch

    def dispatch(self, batches, lap=None):
        nonlocal count
        count += 1
        own(self, batches, lap)
        if count == update:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(DQN, "dispatch", dispatch)
    with pytest.raises(KeyboardInterrupt, match=r"saved .*run after \d+ steps"):
        train(TINY, tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert list((tmp_path / "run" / "checkpoint").glob("*.safetensors"))
    assert train(TINY, tmp_path / "run", resume=True)["steps"] == 1600


def test_a_run_can_be_made_longer(tmp_path):
    train(TINY, tmp_path / "run", keep_checkpoint=True)
    longer = TINY.with_(steps=2400)
    result = train(longer, tmp_path / "run", resume=True)
    assert result["steps"] == 2400
    assert read_result(tmp_path / "run")["hash"] == longer.hash
    steps = [line["steps"] for line in read_metrics(tmp_path / "run")]
    assert steps == [400, 800, 1200, 1600, 2000, 2400]
    with pytest.raises(ValueError, match="steps 2400 and not 1600"):
        train(TINY, tmp_path / "run", resume=True)


def test_a_start_that_left_nothing_does_not_block_its_name(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")  # killed before its first checkpoint
    assert train(TINY, tmp_path / "run")["steps"] == 1600


def test_a_share_has_an_interval_even_if_nothing_failed():
    """Wilson's, by hand: n / (n + z^2) at best."""
    low, high = share_interval(np.ones(500))
    assert (low, high) == pytest.approx((500 / (500 + 1.959964**2), 1.0))
    low, high = share_interval([0, 1, 1, 0])
    assert low == pytest.approx(1 - high)
    assert 0.1 < low < 0.2


def test_a_second_ctrl_c_is_not_held():
    with held_interrupts() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_damaged_checkpoint_falls_back_on_the_one_before_and_says_so(tmp_path, caplog):
    run = interrupted(tmp_path / "run")
    *_, previous, newest = sorted((tmp_path / "run" / "checkpoint").iterdir())
    before = run.metrics
    flipped = bytearray(newest.read_bytes())
    flipped[-5] ^= 1  # one bit of the last number
    newest.write_bytes(flipped)
    _, about = run.load_checkpoint()
    assert about["steps"] == int(previous.stem)
    said = f"{newest} is damaged: its checksum is of another content; the run goes on from step"
    assert said in caplog.text
    assert said in (tmp_path / "run" / "notes.txt").read_text()
    assert run.metrics == [line for line in before if line["steps"] <= about["steps"]] != before
    # It is out of the way: the next checkpoints do not make it one of the two that are kept.
    assert newest.with_suffix(".damaged").read_bytes() == flipped
    assert run.load_checkpoint()[1] == about
    previous.write_bytes(b"")
    with pytest.raises(ValueError, match="damaged"):
        run.load_checkpoint()


def test_a_run_goes_on_after_a_damaged_checkpoint(tmp_path):
    undisturbed = train(TINY, tmp_path / "undisturbed", keep_checkpoint=True)
    interrupted(tmp_path / "run")
    newest = max((tmp_path / "run" / "checkpoint").iterdir())
    newest.write_bytes(newest.read_bytes()[:1000])
    result = train(TINY, tmp_path / "run", resume=True)
    assert result["steps"] == undisturbed["steps"]
    steps = [line["steps"] for line in read_metrics(tmp_path / "run")]
    assert steps == [line["steps"] for line in read_metrics(tmp_path / "undisturbed")]


def test_another_configuration_or_task_is_refused(tmp_path):
    train(TINY, tmp_path / "run")
    with pytest.raises(ValueError, match="holds a run already"):
        train(TINY, tmp_path / "run")
    with pytest.raises(ValueError, match=r"gamma_per_s 0\.818 and not 0\.5"):
        train(TINY.with_(gamma_per_s=0.5), tmp_path / "run", resume=True)
    interrupted(tmp_path / "a")
    interrupted(tmp_path / "b", tiny(task="cartpole", steps=1200, period="50ms"))
    shutil.rmtree(tmp_path / "a" / "checkpoint")
    shutil.copytree(tmp_path / "b" / "checkpoint", tmp_path / "a" / "checkpoint")
    with pytest.raises(ValueError, match="is of another configuration"):
        train(TINY, tmp_path / "a", resume=True)
    policy = midstride.load(tmp_path / "b")
    with pytest.raises(ValueError, match="task and knowledge that it was trained with"):
        evaluate(policy, tiny(knowledge=()).environment.make(1), 1)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    run = interrupted(tmp_path / "run")
    trainer = Trainer.create(TINY)
    trainer.restore(run)
    before = sorted((tmp_path / "run" / "checkpoint").iterdir())

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    trainer.steps = 99_999
    with pytest.raises(OSError, match="could not be written: the disk is full"):
        trainer.save(run)
    assert sorted((tmp_path / "run" / "checkpoint").iterdir()) == before
    run.load_checkpoint()


def test_damaged_run_files(tmp_path):
    with pytest.raises(ValueError, match="is not the folder of a run"):
        Run.open(tmp_path)
    train(tiny(steps=400), tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    record = json.loads(path.read_text())
    record["agent"]["magic"] = 1
    with pytest.raises(ValueError, match="unknown setting of the agent magic"):
        Training.from_dict(record)
    path.write_text(path.read_text()[:50])
    with pytest.raises(ValueError, match="damaged"):
        Run.open(tmp_path / "run")


# --- Settings


def test_settings_round_trip():
    again = Training.from_dict(json.loads(json.dumps(TINY.to_dict())))
    assert again == TINY
    assert again.hash == TINY.hash != TINY.with_(seed=1).hash
    assert again["latency"] == "50ms"


@pytest.mark.parametrize("agent", ["dqn", "drqn", "qtopt"])
@pytest.mark.parametrize("task", ["cartpole", "grasp", "gym:Reacher-v5"])
def test_no_setting_has_two_owners(task, agent):
    parts = Training.of(task, agent).parts.values()
    names = [name for part in parts for name in part.to_dict()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be a whole number from 1"),
        ({"steps": True}, "steps must be a whole number, got True"),
        ({"steps": 1e4}, "steps must be a whole number, got 10000.0"),
        ({"gamma_per_s": 1.0}, "gamma_per_s must be a number from 1e-06 to 0.999999"),
        ({"latency": "soon"}, "is not a time"),
        ({"latency": None}, "latency must be a latency such as 25ms"),
        ({"knowledge": ("magic",)}, "unknown knowledge"),
        ({"agent": "sarsa"}, "unknown agent 'sarsa'"),
        ({"target": "x"}, "target must be one of full_period, concurrent"),
        ({"epsilon_end": 2.0}, "epsilon_end must be a number from 0 to 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a number from 1e-12"),
        ({"double": "no"}, "double must be true or false, got 'no'"),
        ({"hidden": (0,)}, "hidden layers need"),
        ({"hidden": 64}, "hidden must be a list, each a whole number, got 64"),
        ({"target": "concurrent", "n_step": 2}, "use n_step 1"),
        (
            {"agent": "drqn", "prioritised": True},
            "unknown setting of pointmass or drqn prioritised",
        ),
        ({"replay_size": 100}, "replay_size must be at least learning_starts"),
        ({"lerning_rate": 1}, "did you mean learning_rate"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        tiny(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "juggling"}, "unknown task 'juggling'"),
        ({"task": "gym:Nothing-v0", "latency": "0"}, "unknown Gymnasium environment"),
        ({"task": "dmc:walker", "latency": "0"}, "gym:ID or dmc:DOMAIN/TASK"),
        ({"task": "gym:Reacher-v5", "latency": "0", "execution": "20ms"}, "unknown setting"),
        ({"task": "gym:HalfCheetah-v5", "latency": "0", "knowledge": ()}, "more than 64"),
        ({"latency": "0", "target": "concurrent"}, "needs a latency above 0"),
        ({"latency": "7ms"}, "nearest valid times"),
    ],
)
def test_bad_environments(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        train(tiny(**options), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- It learns


@pytest.mark.slow
def test_cartpole_latency_hurts_and_knowledge_heals(tmp_path):
    base = Training.of("cartpole", steps=60_000)
    late = {"period": None, "execution": "0", "latency": "50ms"}
    blocking = train(base, tmp_path / "a")["mean_return"]
    unaware, aware = (
        train(base.with_(**late, knowledge=knows), tmp_path / str(len(knows)))["mean_return"]
        for knows in ((), ("vector_to_go",))
    )
    assert blocking > 650
    assert unaware < 0.7 * blocking
    assert aware > 0.9 * blocking


def test_two_trainings_cannot_share_a_folder(tmp_path):
    folder = tmp_path / "run"
    with (
        claimed(folder),
        pytest.raises(ValueError, match="another process is training in"),
    ):
        train(TINY, folder)
    assert not folder.exists()  # nothing came of it
    assert train(TINY, folder)["steps"] == TINY.run.steps  # free again


@pytest.mark.parametrize("resume", [True, False])
def test_checkpoints_that_cannot_be_looked_at_are_an_error_and_no_fresh_start(tmp_path, resume):
    interrupted(tmp_path / "run")
    folder = tmp_path / "run" / "checkpoint"
    shutil.rmtree(folder)
    folder.write_text("a file in the folder's place")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(ValueError, match=r"checkpoints in .*checkpoint cannot be read \(Not a dir"):
        train(TINY, tmp_path / "run", resume=resume)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}


def test_checkpoints_that_may_not_be_read_are_an_error(tmp_path, monkeypatch):
    interrupted(tmp_path / "run")

    def iterdir(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with pytest.raises(ValueError, match=r"cannot be read \(Permission denied\): mend that"):
        train(TINY, tmp_path / "run", resume=True)
