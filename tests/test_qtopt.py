"""QT-Opt: labels by hand, the same numbers with and without JAX, and a problem it must solve."""

import hashlib
import json
from dataclasses import replace
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import midstride
from benchmarks import qtopt as benchmark
from midstride.cli import main
from midstride.disk.runs import Run, read_config, read_metrics
from midstride.learn.agents import QTOpt, configure_jax
from midstride.learn.cem import ActionSpace
from midstride.learn.config import GraspConfig, config_from_dict
from midstride.learn.learner import explored
from midstride.learn.qtopt import shifted, tinted
from midstride.learn.replay import Experience
from midstride.learn.scripted_data import SETTINGS, collect, scripted_data
from midstride.learn.train import Trainer, train
from midstride.paper import grasp_studies, table1
from midstride.paper.table1 import unusual
from midstride.tasks.make import make_envs

SPACE = ActionSpace(np.full(4, -1.0), np.ones(4), SETTINGS)
BLOCKS = {"base": slice(0, 2), "vector_to_go": slice(2, 7)}
SMALL = GraspConfig(
    image_size=16, hidden_size=32, samples=16, batch_size=16, num_envs=4, scenes=8, steps=320,
    scripted_steps=80, auxiliary_updates=100, offline_updates=4, replay_size=1000,
    evaluate_every=160, evaluation_episodes=2, checkpoint_every=160, knowledge=("vector_to_go",),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    configure_jax()


def agent_for(**options):
    return QTOpt(replace(SMALL, **options), BLOCKS, SPACE, np.full(10, 0.1))


def some_batch(rng, n, size=16):
    return {
        "state": rng.normal(size=(n, 7)).astype(np.float32),
        "image": rng.integers(0, 256, (n, size, size, 3), dtype=np.uint8),
        "action": np.concatenate(
            [rng.uniform(-1, 1, (n, 4)), SETTINGS[rng.integers(4, size=n)]], axis=1
        ).astype(np.float32),
        "reward": rng.integers(2, size=n).astype(np.float32),
        "period_s": rng.uniform(0.2, 0.6, n).astype(np.float32),
        "terminated": rng.random(n) < 0.3,
        "auxiliary": rng.normal(size=(n, 10)).astype(np.float32),
    }


# --- Numbers


@pytest.mark.parametrize("observation", ["image", "state"])
def test_the_policy_computes_what_the_network_does(observation):
    agent = agent_for(observation=observation)
    batch = some_batch(np.random.default_rng(0), 5)
    image = batch["image"] if observation == "image" else None
    network = agent._network(agent.state["online"])
    features, predicted = network.encode(batch["state"], image)
    assert (predicted is None) == (image is None)
    actions = np.stack([batch["action"]] * 3, axis=1)
    expected = network.score(features[:, None], actions)
    policy = agent.policy
    found = policy.score(policy.features(batch["state"], image), actions)
    assert found == pytest.approx(np.array(expected), abs=2e-5)


def test_what_an_action_says_beside_terminate_is_not_seen():
    agent = agent_for()
    rng = np.random.default_rng(0)
    batch = some_batch(rng, 6)
    network = agent._network(agent.state["online"])
    features = network.encode(batch["state"], batch["image"])[0]
    beside = rng.uniform(-1, 1, (6, 4)), rng.uniform(-1, 1, (6, 4))
    for command in SETTINGS:
        first, second = (
            network.score(features, np.concatenate([b, [command] * 6], axis=1)) for b in beside
        )
        assert (first == second).all() == bool(command[2])


def test_every_block_matters_and_no_other_column_does():
    agent = agent_for()
    rng = np.random.default_rng(0)
    batch = some_batch(rng, 4)
    network = agent._network(agent.state["online"])
    before = network.encode(batch["state"], batch["image"])[0]
    for part in BLOCKS.values():
        other = batch["state"].copy()
        other[:, part] += 1
        assert (network.encode(other, batch["image"])[0] != before).any(axis=1).all()
    without = QTOpt(SMALL, {"base": slice(0, 2)}, SPACE, np.full(10, 0.1))
    network = without._network(without.state["online"])
    other = batch["state"].copy()
    other[:, 2:] += 1
    assert (
        network.encode(other, batch["image"])[0]
        == network.encode(batch["state"], batch["image"])[0]
    ).all()


def test_a_policy_repeats_after_a_reset_and_takes_one_or_many():
    policy = agent_for().policy
    batch = some_batch(np.random.default_rng(1), 3)
    seen = {"image": batch["image"], "state": batch["state"]}
    many = policy(seen)
    assert many.shape == (3, 7)
    assert (policy(seen) != many).any()  # it searches anew
    policy.reset()
    assert (policy(seen) == many).all()
    policy.reset()
    one = policy({name: part[0] for name, part in seen.items()})
    assert one.shape == (7,)
    assert all(row in SETTINGS.tolist() for row in many[:, 4:].tolist())
    with pytest.raises(ValueError, match="this policy observes 7 columns, got 6"):
        policy({"image": batch["image"], "state": batch["state"][:, :6]})


def test_labels_by_hand():
    """Constant networks: the value of any next action is known, and the smaller of the two."""
    agent = agent_for(gamma=0.5)
    batch = some_batch(np.random.default_rng(0), 6)
    batch["next_state"], batch["next_image"] = batch["state"], batch["image"]
    batch["reward"] = np.array([1, 0, -0.05, -0.05, 1, 0], np.float32)
    batch["terminated"] = np.array([True, True, False, False, False, False])
    batch["period_s"] = np.array([0.3, 0.3, 0.3, 1.0, 0.3, 2.0], np.float32)

    def constant(logit):
        network = agent._network(jnp.zeros_like(agent.state["online"]))
        return eqx.tree_at(lambda n: n.out.bias, network, jnp.full(1, logit))

    target, lagged = constant(1.0), constant(0.3)
    value = -0.25 + 1.25 / (1 + np.exp(-0.3))  # values go from -0.25 to 1
    found = agent.label(target, lagged, batch, jax.random.key(0))
    expected = [1, 0, -0.05 + 0.5**0.3 * value, -0.05 + 0.5 * value, 1, 0.25 * value]
    assert found * 1.25 - 0.25 == pytest.approx(np.array(expected), abs=1e-5)

    concurrent = agent_for(gamma=0.5, target="concurrent")
    batch |= {
        "switch_state": batch["state"], "switch_image": batch["image"],
        "reward_before": np.full(6, -0.02, np.float32),
        "latency_s": np.full(6, 0.1, np.float32),
    }  # fmt: skip
    found = concurrent.label(target, lagged, batch, jax.random.key(0))
    factor = 0.5**0.1
    expected = [-0.02 + factor * 1.02, -0.02 + factor * 0.02, *[-0.02 + factor * value] * 4]
    assert found * 1.25 - 0.25 == pytest.approx(np.array(expected), abs=1e-5)


def test_weights_move_as_they_should():
    agent = agent_for(target_lag=3, acting_tau=0.5, target_tau=0.25)
    rng = np.random.default_rng(0)
    replay = some_experience(rng)
    start = np.array(agent.state["online"])
    target = acting = start
    for updates in (1, 2, 3):
        agent.dispatch(agent.sample_experience([(replay, 1.0)], rng, 1))
        agent.sync()
        online = np.array(agent.state["online"])
        assert (online != start).any()
        target, acting = 0.75 * target + 0.25 * online, 0.5 * acting + 0.5 * online
        assert agent.state["target"] == pytest.approx(target, abs=1e-6)
        assert agent.state["acting"] == pytest.approx(acting, abs=1e-6)
        lagged = agent.state["target"] if updates == 3 else start
        assert (agent.state["lagged"] == lagged).all()
    assert int(agent.state["updates"]) == 3
    for policy, name in ((agent.policy, "target"), (agent.averaged_policy(), "acting")):
        assert (policy.weights["out.weight"] == agent._named(agent.state[name])["out.weight"]).all()


def test_newest_weights_can_act_and_be_kept():
    agent = agent_for(averaged=False)
    rng = np.random.default_rng(0)
    agent.dispatch(agent.sample_experience([(some_experience(rng), 1.0)], rng, 2))
    agent.sync()
    newest = agent._named(agent.state["online"])["out.weight"]
    assert (agent.policy.weights["out.weight"] == newest).all()
    assert (agent.averaged_policy().weights["out.weight"] == newest).all()


def test_the_auxiliary_head_teaches_what_an_image_shows():
    """Images of one brightness each, which is what is to be told."""
    agent = agent_for(shift=0)
    rng = np.random.default_rng(0)
    replay = Experience(400, 4, _fields(), ["state", "image"], longest=5)
    for _ in range(50):
        step = _step(rng, 4)
        shade = rng.integers(0, 256, (4, 1, 1, 1))
        step["image"] = step["next_image"] = np.broadcast_to(shade, (4, 16, 16, 3)).astype(np.uint8)
        step["auxiliary"] = np.repeat(shade[:, 0, 0] / 128.0 - 1, 10, axis=1).astype(np.float32)
        replay.add({**step, "terminated": np.zeros(4, bool), "done": np.zeros(4, bool)})
    seen = replay.sample(np.random.default_rng(1), 100)

    def error():
        network = agent._network(agent.state["online"])
        return np.abs(network.encode(seen["state"], seen["image"])[1] - seen["auxiliary"]).mean()

    before = error()
    agent.learn_auxiliary(replay, rng, 200)
    assert error() < 0.2 * before
    for name in ("target", "lagged", "acting"):
        assert (agent.state[name] == agent.state["online"]).all()

    without = agent_for(auxiliary_weight=0.0)
    start = np.array(without.state["online"])
    without.learn_auxiliary(replay, rng, 200)
    assert (without.state["online"] == start).all()


def test_the_policys_search_finds_known_maxima():
    """Each setting has a peak of its own; one is the highest."""
    peaks = np.array([[0.5, 0, 0, 0], [-0.5, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 0.5, 0]])
    heights = np.array([[1.0, 2.0, 1.5, 0.5], [0.2, 0.1, 0.9, 3.0]])

    def score(features, actions):
        setting = np.where(actions[..., 4:].sum(-1) > 0, actions[..., 4:].argmax(-1) + 1, 0)
        bowl = ((actions[..., :4] - peaks[setting]) ** 2).sum(-1)
        return np.take_along_axis(heights, setting, axis=1) - bowl

    policy = agent_for(acting_rounds=5, samples=128).policy
    with patch.object(policy, "score", score):
        action, value = policy.best(np.zeros((2, 32), np.float32))
    assert action[:, 4:].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert action[:, :4] == pytest.approx(peaks[[1, 3]], abs=0.15)
    assert value == pytest.approx(np.array([2.0, 3.0]), abs=0.1)


def test_labels_are_reused_as_often_as_asked():
    agent = agent_for(label_reuse=4, batch_size=8)
    rng = np.random.default_rng(0)
    replay = some_experience(rng)
    batch = agent.sample_experience([(replay, 1.0)], rng, 6)
    assert batch["index"].shape == (6, 8)
    assert len(batch["state"]) == 12
    assert (np.bincount(batch["index"].ravel()) == 4).all()


# --- Augmentation and exploration


def test_shifts_are_shifts():
    image = jnp.arange(5 * 8 * 8 * 3, dtype=jnp.uint8).reshape(5, 8, 8, 3)
    moved = np.array(shifted(image, jax.random.key(1), 2))
    padded = np.pad(np.array(image), ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge")
    for i in range(5):
        crops = [padded[i, y : y + 8, x : x + 8] for y in range(5) for x in range(5)]
        assert any((moved[i] == crop).all() for crop in crops)
    assert (moved != np.array(image)).any()


def test_tints_scale_each_channel():
    image = jnp.full((6, 4, 4, 3), 100, jnp.uint8)
    tint = np.array(tinted(image, jax.random.key(0), 0.2))
    assert ((tint >= 80) & (tint <= 120)).all()
    assert (np.ptp(tint, axis=(1, 2)) < 1e-3).all()
    assert np.ptp(tint[:, 0, 0]) > 10


def test_exploration_stays_within_bounds_and_keeps_most():
    rng = np.random.default_rng(0)
    action = np.tile([0.9, 0, 0, 0, 1, 0, 0], (4000, 1)).astype(np.float32)
    tried = explored(action, sigma=0.15, epsilon=0.1, rng=rng)
    assert np.abs(tried[:, :4]).max() <= 1
    assert all(row in SETTINGS.tolist() for row in np.unique(tried[:, 4:], axis=0).tolist())
    kept = (tried[:, 4:] == action[:, 4:]).all(axis=1).mean()
    assert 0.9 < kept < 0.96
    assert 0 < tried[:, 6].mean() < 0.01


# --- Experience


def _fields():
    return {
        "state": ((7,), np.float32), "image": ((16, 16, 3), np.uint8),
        "action": ((7,), np.float32), "reward": ((), np.float32), "period_s": ((), np.float32),
        "auxiliary": ((10,), np.float32),
    }  # fmt: skip


def _step(rng, n):
    batch = some_batch(rng, n)
    return {**batch, "next_state": batch["state"] + 1, "next_image": batch["image"]}


def some_experience(rng):
    replay = Experience(200, 4, _fields(), ["state", "image"], longest=5)
    for _ in range(20):
        replay.add({**_step(rng, 4), "terminated": np.zeros(4, bool), "done": np.zeros(4, bool)})
    return replay


@given(seed=st.integers(0, 10_000), length=st.integers(2, 40))
@settings(max_examples=30)
def test_every_transition_that_is_sampled_was_lived(seed, length):
    """A counter as observation: what follows is one more, also where an episode was cut off."""
    rng = np.random.default_rng(seed)
    n, longest = 3, 4
    replay = Experience(n * length, n, {"state": ((), np.int64)}, ["state"], longest)
    clock, age, episode = np.zeros(n, int), np.zeros(n, int), np.arange(n) * 1000
    for count in range(3 * length):
        if count == 2 * length:  # a seam: other episodes begin
            replay.cut()
            clock += 300
            age[:] = 0
        now = episode + clock
        age += 1
        cut = age >= longest
        terminated = (rng.random(n) < 0.2) & ~cut
        done = cut | terminated
        replay.add({"state": now, "next_state": now + 1, "terminated": terminated, "done": done})
        clock += 1
        clock[done] += 500  # another episode begins elsewhere
        age[done] = 0
        if replay.added < 2:
            continue
        batch = replay.sample(rng, 20)
        alive = ~batch["terminated"]
        assert (batch["next_state"][alive] == batch["state"][alive] + 1).all()
    arrays = {name: array.copy() for name, array in replay.arrays().items()}
    again = Experience(n * length, n, {"state": ((), np.int64)}, ["state"], longest)
    again.restore(arrays, replay.added)
    a, b = (r.sample(np.random.default_rng(1), 30) for r in (replay, again))
    assert all((a[name] == b[name]).all() for name in a)
    again.add({"state": np.full(n, -7), "next_state": np.full(n, -6), "terminated": terminated,
               "done": done})  # fmt: skip
    batch = again.sample(rng, 50)
    alive = ~batch["terminated"]
    assert (batch["next_state"][alive] == batch["state"][alive] + 1).all()


# --- Training


def test_a_known_optimum_is_learned():
    """One step: success if x is near the state's, with the gripper closed. Nothing to bootstrap."""
    config = replace(
        SMALL, observation="state", batch_size=64, hidden_size=64, acting_tau=0.02, samples=64,
        learning_rate=1e-3,
    )  # fmt: skip
    agent = QTOpt(config, {"base": slice(0, 1)}, SPACE, np.zeros(0))
    rng = np.random.default_rng(0)
    for _ in range(60):
        n = 8 * 64
        wanted = rng.uniform(-0.8, 0.8, (n, 1)).astype(np.float32)
        action = np.concatenate(
            [rng.uniform(-1, 1, (n, 4)), SETTINGS[rng.integers(4, size=n)]], axis=1
        ).astype(np.float32)
        good = (np.abs(action[:, 0] - wanted[:, 0]) < 0.3) & (action[:, 4] > 0)
        agent.dispatch(
            {
                "state": wanted, "next_state": wanted, "action": action,
                "reward": good.astype(np.float32), "terminated": np.ones(n, bool),
                "period_s": np.ones(n, np.float32), "index": np.arange(n).reshape(8, 64),
            }
        )  # fmt: skip
        agent.sync()
    wanted = np.linspace(-0.7, 0.7, 15, dtype=np.float32)[:, None]
    action = agent.averaged_policy()(wanted)
    assert (action[:, 4] == 1).all()
    assert np.abs(action[:, 0] - wanted[:, 0]).mean() < 0.15


@pytest.mark.parametrize(
    "options",
    [{"observation": "state"}, {"target": "concurrent"}, {"mode": "blocking", "knowledge": ()}],
)
def test_a_run_trains_resumes_and_loads(tmp_path, options):
    config = replace(SMALL, **options)
    result = train(config, tmp_path / "run")
    assert result["steps"] == 320
    assert len(result["measures"]["success"]) == 8
    assert {"success", "duration_s", "completion"} <= set(read_metrics(tmp_path / "run")[0])
    policy = midstride.load(tmp_path / "run")
    envs = make_envs(config, 2, evaluation=1)
    observation, _ = envs.reset(seed=0)
    assert policy(observation).shape == (2, 7)
    assert config_from_dict(policy.description["config"]) == config

    with patch.object(Run, "finish"):  # ends just before its end
        train(config, tmp_path / "again")
    max((tmp_path / "again" / "checkpoint").iterdir()).unlink()  # that of the end
    trainer = Trainer.create(config)
    assert trainer.restore(Run.open(tmp_path / "again"))
    assert trainer.steps == 160
    assert int(trainer.agent.state["updates"]) == 4 + 160 // 4
    assert train(config, tmp_path / "again", resume=True)["steps"] == 320


def test_a_seed_repeats_and_another_differs(tmp_path):
    config = replace(SMALL, steps=160)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(replace(config, seed=seed), tmp_path / name)
    a, b, c = (midstride.load(tmp_path / name).weights for name in "abc")
    assert all((a[name] == b[name]).all() for name in a)
    assert any((a[name] != c[name]).any() for name in a)


SCRIPTED = replace(SMALL, num_envs=16, scripted_steps=1600, observation="state")


def test_scripted_data_has_successes_and_failures():
    data = collect(SCRIPTED).arrays()
    ended = data["done"]
    successes = (data["reward"] > 0.5).sum() / ended.sum()
    assert 0.15 < successes < 0.7
    assert (data["terminated"] & (data["reward"] < 0.5)).any()  # ended too early


@pytest.mark.parametrize("options", [{}, {"observation": "image"}, {"target": "concurrent"}])
def test_scripted_data_is_the_same_for_every_row_of_a_mode(tmp_path, options):
    """Collected with one row's knowledge and penalty or taken from what another left behind."""
    config = replace(SCRIPTED, num_envs=4, scripted_steps=120, **options)
    row = replace(config, knowledge=("previous_action",), step_penalty=0.01)
    expected = collect(row).arrays()
    scripted_data(config, make_envs(config, 1), tmp_path)
    (kept,) = tmp_path.iterdir()
    stamp = kept.stat().st_mtime_ns
    found = scripted_data(row, make_envs(row, 1), tmp_path).arrays()
    assert kept.stat().st_mtime_ns == stamp
    held = {name for name in found if not name.startswith(("last_", "after_", "cut_off"))}
    assert held == {n for n in expected if not n.startswith(("last_", "after_", "cut_off"))}
    for name in held:
        assert found[name] == pytest.approx(expected[name], abs=1e-6), name
    other = replace(row, seed=1)
    scripted_data(other, make_envs(other, 1), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    kept.write_bytes(b"torn")  # collected again
    again = scripted_data(row, make_envs(row, 1), tmp_path).arrays()
    assert (again["state"] == found["state"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 50}, "image_size must be a multiple of 16, got 50"),
        ({"mode": "blocking", "target": "concurrent"}, "the concurrent target is for concurrent"),
        ({"mode": "frozen"}, "mode must be one of concurrent, blocking, got 'frozen'"),
        ({"task": "cartpole"}, "qtopt is for the task grasp, got 'cartpole'"),
        ({"scripted_share": 2}, "scripted_share must be from 0 to 1"),
        ({"samples": 2}, "samples must be at least 6"),
        ({"gamma": 1.0}, "gamma must be below 1"),
    ],
)
def test_bad_configurations_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        GraspConfig(**options)


def test_a_run_keeps_its_name_when_options_are_added():
    before = {name: value for name, value in SMALL.to_dict().items() if name != "camera"}
    text = json.dumps(before, sort_keys=True)
    assert SMALL.hash == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert GraspConfig.from_dict(before) == SMALL
    assert replace(SMALL, camera="following").hash != SMALL.hash


def test_a_row_that_the_table_does_not_have_is_named(capsys):
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "table1", "--rows", "9"])
    assert end.value.code == 2
    assert "Table 1 has rows 1 to 7, got 9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["table1", "--mode", "blocking"], "are what the rows of Table 1 differ in"),
        (["table1", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["grasp-latencies", "--latency", "60ms"], "give --latencies, not --latency"),
        (["grasp-ablation", "--shift", "0"], "two of the trainings to compare are the same"),
        (["--seeds", "2", "table1"], "write midstride reproduce table1"),
    ],
)
def test_bad_tables_are_named(args, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(["reproduce", *args])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_a_table_is_named_by_what_is_unusual():
    assert unusual(GraspConfig(seed=3, mode="blocking")) == []
    assert unusual(GraspConfig(observation="state", objects=3)) == ["state", "3-objects"]
    assert unusual(GraspConfig(latency="episode:0,100ms")) == ["latency_episode_0_100ms"]


def test_table1_from_one_command_and_again_from_what_it_left(tmp_path, monkeypatch):
    """Two rows, two seeds, trained for a moment: everything that is promised is written."""
    of_another = tmp_path / "runs" / "grasp" / "scripted" / "of-another-study.safetensors"
    of_another.parent.mkdir(parents=True)
    of_another.touch()
    small = {
        "observation": "state", "hidden-size": 16, "samples": 8, "batch-size": 8, "num-envs": 4,
        "scenes": 8, "steps": 160, "scripted-steps": 80, "offline-updates": 4,
        "evaluate-every": 160, "evaluation-episodes": 2, "seeds": 2,
        "output": tmp_path / "out", "runs": tmp_path / "runs",
    }  # fmt: skip
    options = [part for name, value in small.items() for part in (f"--{name}", str(value))]
    command = ["reproduce", "table1", *options, "--rows", "2", "5"]
    filmed = []

    def film_run(run, episodes, seed, path, console):
        filmed.append(read_config(run))
        for ending in (".mp4", ".png"):
            path.with_suffix(ending).write_text(run.name)

    monkeypatch.setattr(table1, "film_run", film_run)
    main(command)
    assert [config.mode for config in filmed] == ["blocking", "concurrent"]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "table.md", "table.csv", "comparison.md", "episodes.csv", "table.png", "curves.png",
        "cost.md", "config.json", "row2.mp4", "row2.png", "row5.mp4",
        "row5.png",
    }  # fmt: skip
    assert "blocking" in (tmp_path / "out" / "row2.mp4").read_text()
    assert "vector_to_go" in (tmp_path / "out" / "row5.mp4").read_text()
    table = (tmp_path / "out" / "table.md").read_text()
    assert "5: concurrent, penalty, VTG" in table
    assert "91.53 % ± 1.04" in table
    episodes = (tmp_path / "out" / "episodes.csv").read_text().splitlines()
    assert len(episodes) == 1 + 2 * 2 * 8
    cost = (tmp_path / "out" / "cost.md").read_text()
    assert all(piece in cost for piece in ("physics", "camera", "labelling", "fitting"))
    assert list(of_another.parent.iterdir()) == [of_another]  # its own has done its work
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("result.json")}
    assert len(stamps) == 4
    main(command)
    assert len(filmed) == 2  # not again
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps


def pretend_to_train(monkeypatch, folder, success):
    """A study gets episodes whose share of successes is `success(config)`; what it trains."""
    trained = {}

    def train_kinds(kinds, seeds, runs, console):
        trained.update(kinds)
        folders, results = {}, {}
        for number, (kind, config) in enumerate(kinds.items()):
            folders[kind] = [folder / f"{number}-{seed}" for seed in range(seeds)]
            for one in folders[kind]:
                one.mkdir()
                line = json.dumps({"steps": 100, "success": success(config)})
                (one / "metrics.jsonl").write_text(line + "\n")
            won = np.arange(20) < 20 * success(config)
            measures = {"success": won.tolist(), "duration_s": (3.0 - won).tolist()}
            result = {"measures": measures, "seconds": 60.0, "split_s": {"physics": 30.0}}
            results[kind] = [result] * seeds
        return folders, results

    monkeypatch.setattr(grasp_studies, "train_kinds", train_kinds)
    return trained


def test_the_gap_at_each_latency_is_told(tmp_path, monkeypatch):
    shares = {("60ms", 0): 0.95, ("60ms", 1): 1.0, ("240ms", 0): 0.25, ("240ms", 1): 0.75}
    trained = pretend_to_train(
        monkeypatch, tmp_path, lambda config: shares[config.latency, len(config.knowledge)]
    )
    out = tmp_path / "out"
    main(["reproduce", "grasp-latencies", "--latencies", "60ms", "240ms", "--output", str(out)])
    assert {(config.latency, len(config.knowledge)) for config in trained.values()} == set(shares)
    assert all(config.step_penalty == 0.01 for config in trained.values())
    assert {path.name for path in out.iterdir()} == {
        "table.md", "gap.md", "episodes.csv", "latencies.png", "curves.png", "cost.md",
        "config.json",
    }  # fmt: skip
    gaps = (out / "gap.md").read_text().splitlines()[-2:]
    assert [line.split("|")[1].strip() for line in gaps] == ["60ms", "240ms"]
    assert "+5.0 (" in gaps[0]
    assert "+50.0 (" in gaps[1]
    assert len((out / "episodes.csv").read_text().splitlines()) == 1 + 4 * 3 * 20
    assert json.loads((out / "config.json").read_text())["seconds"] == 4 * 3 * 60


def test_each_addition_of_ours_is_taken_away_once(tmp_path, monkeypatch):
    trained = pretend_to_train(monkeypatch, tmp_path, lambda config: 0.5 + 0.25 * config.averaged)
    out = tmp_path / "out"
    main(["reproduce", "grasp-ablation", "--seeds", "2", "--output", str(out)])
    usual = table1.row_config(GraspConfig(), 5)
    assert trained == {
        "as it is": usual,
        "no auxiliary head": replace(usual, auxiliary_weight=0.0),
        "no shifts": replace(usual, shift=0),
        "newest weights": replace(usual, averaged=False),
        "two rounds of search": replace(usual, acting_rounds=2),
    }
    lines = (out / "table.md").read_text().splitlines()
    success = {line.split("|")[1].strip(): line.split("|")[2].split()[0] for line in lines[2:]}
    assert success == {k: "50.0%" if k == "newest weights" else "75.0%" for k in trained}
    lines = (out / "difference.md").read_text().splitlines()
    changes = {line.split("|")[1].strip(): line.split("|")[2].split()[0] for line in lines[2:]}
    assert changes == {
        k: "-25.0" if k == "newest weights" else "+0.0" for k in trained if k != "as it is"
    }
    assert len((out / "episodes.csv").read_text().splitlines()) == 1 + 5 * 2 * 20


def test_the_benchmarks_ordinary_network_fits_in_the_same_places():
    """What the benchmark compares with is the same critic, with convolutions for eyes."""
    size, rng = benchmark.CONFIG.image_size, np.random.default_rng(0)
    batch = some_batch(rng, 4, size) | {"label": rng.random(4, np.float32)}
    batch["auxiliary"] = batch["auxiliary"][:, : len(benchmark.AUXILIARY)]
    shapes = []
    for kind in (QTOpt, benchmark.ConvolutionQTOpt):
        agent = kind(benchmark.CONFIG, benchmark.BLOCKS, benchmark.SPACE, benchmark.AUXILIARY)
        network = agent._network(agent.state["online"])
        jax.eval_shape(agent.fit, agent.state, batch, jax.random.key(0))  # an error if it cannot
        seen = jax.eval_shape(network.encode, batch["state"], batch["image"])
        shapes.append([part.shape for part in seen])
    assert shapes[0] == shapes[1]


# --- It learns


@pytest.mark.slow
def test_an_arm_that_knows_what_is_in_flight_learns_to_grasp_and_one_that_does_not_lags(tmp_path):
    base = GraspConfig(observation="state", latency="240ms", steps=24_000)
    unaware, aware = (
        np.mean(train(table1.row_config(base, row), tmp_path / str(row))["measures"]["success"])
        for row in (4, 5)
    )
    assert aware > 0.85
    assert unaware < aware - 0.15


@pytest.mark.slow
def test_it_learns_to_grasp_from_images(tmp_path):
    config = table1.row_config(GraspConfig(steps=24_000), 5)
    assert np.mean(train(config, tmp_path / "run")["measures"]["success"]) > 0.8
