"""Training: it learns, repeats, survives being killed, and says clearly what is wrong."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import midstride
from midstride.disk import files
from midstride.disk.runs import Run, claimed, read_metrics, read_result
from midstride.envs.loop import interact
from midstride.learn.agents import Agent
from midstride.learn.config import Config
from midstride.learn.replay import unpack
from midstride.learn.train import Trainer, held_interrupts, train
from midstride.measure.evaluate import evaluate, interval, share_interval
from midstride.policies import Policy
from midstride.tasks.make import make_envs
from midstride.timing import Fixed

TINY = Config(
    task="pointmass", steps=1600, num_envs=4, hidden=(16,), batch_size=16, learning_starts=200,
    evaluate_every=400, evaluation_episodes=2, checkpoint_every=400, replay_size=2000,
    latency="50ms", knowledge=("vector_to_go",), lstm_size=8, segment=5, burn_in=2,
)  # fmt: skip


@pytest.mark.parametrize("agent", ["dqn", "drqn"])
def test_a_run_leaves_everything_in_its_folder(tmp_path, agent):
    result = train(replace(TINY, agent=agent), tmp_path / "run")
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
    again = evaluate(policy, replace(TINY, agent=agent), 8)
    assert [episode.total for episode in again] == result["returns"]


@pytest.mark.parametrize("agent", ["dqn", "drqn"])
def test_one_seed_repeats_to_the_last_bit_and_two_differ(tmp_path, agent):
    config = replace(TINY, agent=agent, steps=800)
    results = [train(config, tmp_path / str(i)) for i in range(2)]
    assert results[0]["returns"] == results[1]["returns"]
    weights = [midstride.load(tmp_path / str(i)).weights for i in range(2)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    other = train(replace(config, seed=1), tmp_path / "other")
    assert other["returns"] != results[0]["returns"]


@pytest.mark.parametrize(
    "options",
    [
        {"target": "concurrent"},
        {"dueling": True, "n_step": 3},
        {"prioritised": True, "n_step": 2},
        {"target_every": 20},
        {"task": "gym:InvertedPendulum-v5", "latency": "20ms", "knowledge": ("previous_action",)},
        {"task": "dmc:cartpole/balance", "latency": "10ms", "knowledge": ("selection_time",)},
        {"agent": "drqn", "target": "concurrent"},
        {"latency": "episode:0,25ms,50ms"},
    ],
    ids=lambda o: "-".join(map(str, o)),
)
def test_every_option_trains(tmp_path, options):
    config = replace(TINY, steps=480, evaluate_every=480, evaluation_episodes=1, **options)
    result = train(config, tmp_path / "run")
    assert np.isfinite(result["returns"]).all()
    assert np.isfinite(read_metrics(tmp_path / "run")[0]["loss"])


def test_the_loop_gives_true_last_observations():
    """Of our environments and of Gymnasium's: what a step leads to, not what a reset gives."""
    for task in ("pointmass", "gym:InvertedPendulum-v5"):
        config = replace(TINY, task=task, latency="0", knowledge=())
        envs = make_envs(config, 2)
        ended = 0
        following, done = None, None
        zeros = lambda o: np.zeros(2, int)  # noqa: E731
        for i, step in enumerate(interact(envs, zeros, 0, lambda which: None)):
            if following is not None:
                same = (step["observation"] == following).all(axis=1)
                assert (same == ~done).all()
            following, done = step["next_observation"], step["done"]
            assert (step["reward_before"] + step["reward_after"]) == pytest.approx(step["reward"])
            assert (step["period_s"] > 0).all()
            ended += int(done.sum())
            if i == 60:
                break
        assert ended > 0


def test_evaluation_is_fair_and_repeats():
    envs = make_envs(TINY, 1)
    policy = Policy(
        {
            "head.advantage.weight": np.zeros((5, envs.single_observation_space.shape[0])),
            "head.advantage.bias": np.arange(5.0),
        }
    )
    episodes = evaluate(policy, TINY, 5, max_envs=2)
    assert len(episodes) == 5
    assert all(episode.seconds == pytest.approx(5) for episode in episodes)
    assert all(episode.latency_s == pytest.approx(0.05) for episode in episodes)
    assert episodes == evaluate(policy, TINY, 5, max_envs=2)
    at_zero = evaluate(policy, TINY, 2, latency=Fixed(0.0))
    assert all(episode.latency_s == 0 for episode in at_zero)


def test_interval_holds_the_mean():
    low, high = interval(np.random.default_rng(0).normal(10, 1, 50))
    assert 9 < low < 10 < high < 11
    assert interval([3.0, 3.0]) == (3.0, 3.0)


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


def _train_in_process(config: Config, folder: Path) -> None:
    train(config, folder, resume=True)


def test_killed_and_resumed(tmp_path):
    """kill -9 at several moments; each time it goes on, and in the end it has finished."""
    config = replace(TINY, steps=4000, checkpoint_every=200, evaluate_every=2000)
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
    config = Config(period="50ms", checkpoint_every=2_000)
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
    assert result["steps"] == config.steps
    assert result["mean_return"] > 0.9 * undisturbed["mean_return"] > 600


def interrupted(folder: Path, config: Config = TINY) -> Run:
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
    assert trainer.replay.added == 300
    assert (unpack(trainer.replay.data["transitions"][:300])["action"] > 0).any()
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
    """Also in the middle of an update, when the old weights are gone and the new not yet there."""
    count = 0

    def dispatch(self, batches, lap=None):
        nonlocal count
        count += 1
        outcome = self._update(self.state, batches)
        if count == update:
            signal.raise_signal(signal.SIGINT)
        self.state, measured = outcome
        self._under_way.append(measured)

    monkeypatch.setattr(Agent, "dispatch", dispatch)
    with pytest.raises(KeyboardInterrupt):
        train(TINY, tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert list((tmp_path / "run" / "checkpoint").glob("*.safetensors"))
    assert train(TINY, tmp_path / "run", resume=True)["steps"] == 1600


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


def test_a_truncated_checkpoint_falls_back_on_the_one_before(tmp_path):
    run = interrupted(tmp_path / "run")
    *_, previous, newest = sorted((tmp_path / "run" / "checkpoint").iterdir())
    newest.write_bytes(newest.read_bytes()[:1000])
    _, about = run.load_checkpoint()
    assert about["steps"] == int(previous.stem)
    previous.write_bytes(b"")
    with pytest.raises(ValueError, match="damaged"):
        run.load_checkpoint()


def test_another_configuration_or_task_is_refused(tmp_path):
    train(TINY, tmp_path / "run")
    with pytest.raises(ValueError, match="holds a run already"):
        train(TINY, tmp_path / "run")
    with pytest.raises(ValueError, match="another configuration"):
        train(replace(TINY, gamma=0.5), tmp_path / "run", resume=True)
    interrupted(tmp_path / "a")
    interrupted(tmp_path / "b", replace(TINY, task="cartpole", steps=1200, period="50ms"))
    shutil.rmtree(tmp_path / "a" / "checkpoint")
    shutil.copytree(tmp_path / "b" / "checkpoint", tmp_path / "a" / "checkpoint")
    with pytest.raises(ValueError, match="of another configuration"):
        train(TINY, tmp_path / "a", resume=True)
    policy = midstride.load(tmp_path / "b")
    with pytest.raises(ValueError, match="task and knowledge that it was trained with"):
        evaluate(policy, replace(TINY, knowledge=()), 1)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    run = interrupted(tmp_path / "run")
    trainer = Trainer.create(TINY)
    trainer.restore(run)
    before = sorted((tmp_path / "run" / "checkpoint").iterdir())

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    trainer.steps = 99_999
    with pytest.raises(OSError, match="No space left"):
        trainer.save(run)
    assert sorted((tmp_path / "run" / "checkpoint").iterdir()) == before
    run.load_checkpoint()


def test_damaged_run_files(tmp_path):
    with pytest.raises(ValueError, match="is not the folder of a run"):
        Run.open(tmp_path)
    train(replace(TINY, steps=400), tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    record = json.loads(path.read_text())
    record["config"]["magic"] = 1
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="unknown configuration magic"):
        Run.open(tmp_path / "run")
    path.write_text(path.read_text()[:50])
    with pytest.raises(ValueError, match="damaged"):
        Run.open(tmp_path / "run")


# --- Configuration


def test_configuration_round_trip():
    again = Config.from_dict(json.loads(json.dumps(TINY.to_dict())))
    assert again == TINY
    assert again.hash == TINY.hash != replace(TINY, seed=1).hash


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"gamma": 1.0}, "gamma must be below 1"),
        ({"latency": "soon"}, "is not a time"),
        ({"knowledge": ("magic",)}, "unknown knowledge"),
        ({"agent": "sarsa"}, "agent must be one of dqn, drqn"),
        ({"target": "x"}, "target must be one of full_period, concurrent"),
        ({"epsilon_end": 2.0}, "epsilon_end must be from 0 to 1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"hidden": (0,)}, "hidden layers need"),
        ({"target": "concurrent", "n_step": 2}, "use n_step 1"),
        ({"agent": "drqn", "prioritised": True}, "drqn learns from segments"),
        ({"replay_size": 100}, "replay_size must be at least learning_starts"),
    ],
)
def test_bad_configurations(options, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "juggling"}, "unknown task 'juggling'"),
        ({"task": "gym:Nothing-v0", "latency": "0"}, "unknown Gymnasium environment"),
        ({"task": "dmc:walker", "latency": "0"}, "unknown task"),
        ({"task": "gym:Reacher-v5", "latency": "0", "period": "20ms"}, "the environment's own"),
        ({"task": "gym:HalfCheetah-v5", "latency": "0", "knowledge": ()}, "more than 64"),
        ({"latency": "0", "target": "concurrent"}, "needs a latency above 0"),
        ({"latency": "7ms"}, "nearest valid times"),
    ],
)
def test_bad_environments(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        train(replace(TINY, **options), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- It learns


@pytest.mark.slow
def test_cartpole_latency_hurts_and_knowledge_heals(tmp_path):
    base = Config(steps=60_000)
    late = {"latency": "50ms", "execution": "0"}
    blocking = train(base, tmp_path / "a")["mean_return"]
    unaware = train(replace(base, **late), tmp_path / "b")["mean_return"]
    aware = train(replace(base, **late, knowledge=("vector_to_go",)), tmp_path / "c")["mean_return"]
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
    assert train(TINY, folder)["steps"] == TINY.steps  # free again
