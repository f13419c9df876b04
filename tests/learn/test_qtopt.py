"""QT-Opt: labels by hand, the same numbers with and without JAX, and a problem it must solve."""

from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import midstride
from benchmarks import qtopt as benchmark
from midstride.disk.runs import Run, read_metrics
from midstride.knowledge import Layout
from midstride.learn.agent import configure_jax
from midstride.learn.agent_settings import RunSettings
from midstride.learn.agents import Training
from midstride.learn.cem import ActionSpace
from midstride.learn.frames import FrameReplay
from midstride.learn.images import shifted, tinted
from midstride.learn.qtopt import QTOpt, QTOptSettings
from midstride.learn.spaces import explored
from midstride.learn.train import train
from midstride.learn.trainer import Trainer
from midstride.tasks.grasp.actions import COMMANDS
from midstride.tasks.registry import environment_from
from tests.helpers import FakeEnvs, step_of

SETTINGS = COMMANDS.settings
SPACE = ActionSpace(np.full(4, -1.0), np.ones(4), SETTINGS)
LAYOUT = Layout(("opening", "height"), ("a",), tuple("xyzwo"), ("vector_to_go",))
AGENT = {
    "hidden_size": 32, "samples": 16, "batch_size": 16, "demonstrations": 80,
    "auxiliary_updates": 100, "offline_updates": 4, "replay_size": 1000,
}  # fmt: skip


def small(**options):
    """A training on grasping that is over in a moment."""
    usual = {
        "image_size": 16, "num_envs": 4, "scenes": 8, "steps": 320, "evaluate_every": 160,
        "evaluation_episodes": 2, "checkpoint_every": 160, "knowledge": ("vector_to_go",),
    }  # fmt: skip
    return Training.of("grasp", "qtopt", **{**usual, **AGENT, **options})


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    configure_jax()


def fake_envs(layout=LAYOUT, observation="image", auxiliary=10):
    state = spaces.Box(-np.inf, np.inf, (len(layout.columns),), np.float32)
    image = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    low, high = np.array([-1.0] * 4 + [0.0] * 3), np.ones(7)
    return FakeEnvs(
        spaces.Dict({"image": image, "state": state}) if observation == "image" else state,
        spaces.Box(low.astype(np.float32), high.astype(np.float32)),
        layout=layout,
        value_bounds=lambda gamma_per_s: (-0.25, 1.0),
        commands=COMMANDS,
        auxiliary=lambda: np.zeros((4, auxiliary), np.float32),
        auxiliary_weights=np.full(auxiliary, 1 / auxiliary, np.float32),
        longest_episode=5,
    )


def agent_for(envs=None, **options):
    settings = QTOptSettings(**{**AGENT, **options})
    rng = np.random.default_rng(0)
    return QTOpt(settings, RunSettings(num_envs=4), envs or fake_envs(), rng)


def some_batch(rng, n, size=16):
    reward = rng.integers(2, size=n).astype(np.float32)
    return {
        "state_capture": rng.normal(size=(n, 7)).astype(np.float32),
        "image_capture": rng.integers(0, 256, (n, size, size, 3), dtype=np.uint8),
        "action": np.concatenate(
            [rng.uniform(-1, 1, (n, 4)), SETTINGS[rng.integers(4, size=n)]], axis=1
        ).astype(np.float32),
        "reward_before_switch": 0 * reward,
        "reward_after_switch": reward,
        "latency_s": np.full(n, 0.1, np.float32),
        "period_s": rng.uniform(0.2, 0.6, n).astype(np.float32),
        "terminated": rng.random(n) < 0.3,
        "auxiliary": rng.normal(size=(n, 10)).astype(np.float32),
    }


# --- Numbers


@pytest.mark.parametrize("observation", ["image", "state"])
def test_the_policy_computes_what_the_network_does(observation):
    agent = agent_for(fake_envs(observation=observation))
    batch = some_batch(np.random.default_rng(0), 5)
    image = batch["image_capture"] if observation == "image" else None
    network = agent.network(agent.state["online"])
    features, predicted = network.encode(batch["state_capture"], image)
    assert (predicted is None) == (image is None)
    actions = np.stack([batch["action"]] * 3, axis=1)
    expected = network.score(features[:, None], actions)
    policy = agent.policy
    found = policy.score(policy.features(batch["state_capture"], image), actions)
    assert found == pytest.approx(np.array(expected), abs=2e-5)


def test_what_an_action_says_beside_terminate_is_not_seen():
    agent = agent_for()
    rng = np.random.default_rng(0)
    batch = some_batch(rng, 6)
    network = agent.network(agent.state["online"])
    features = network.encode(batch["state_capture"], batch["image_capture"])[0]
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
    network = agent.network(agent.state["online"])
    before = network.encode(batch["state_capture"], batch["image_capture"])[0]
    for part in LAYOUT.slices.values():
        other = batch["state_capture"].copy()
        other[:, part] += 1
        assert (network.encode(other, batch["image_capture"])[0] != before).any(axis=1).all()
    without = agent_for(fake_envs(Layout(("opening", "height"), ("a",), None)))
    network = without.network(without.state["online"])
    other = batch["state_capture"].copy()
    other[:, 2:] += 1
    assert (
        network.encode(other, batch["image_capture"])[0]
        == network.encode(batch["state_capture"], batch["image_capture"])[0]
    ).all()


def test_a_policy_repeats_after_a_reset_and_takes_one_or_many():
    policy = agent_for().policy
    batch = some_batch(np.random.default_rng(1), 3)
    seen = {"image": batch["image_capture"], "state": batch["state_capture"]}
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
        policy({"image": batch["image_capture"], "state": batch["state_capture"][:, :6]})


def test_labels_by_hand():
    """Constant networks: the value of any next action is known, and the smaller of the two."""
    agent = agent_for(gamma_per_s=0.5)
    batch = some_batch(np.random.default_rng(0), 6)
    batch["state_next"], batch["image_next"] = batch["state_capture"], batch["image_capture"]
    batch["reward_before_switch"] = np.zeros(6, np.float32)
    reward = np.array([1, 0, -0.05, -0.05, 1, 0], np.float32)
    batch["reward_after_switch"] = reward
    batch["terminated"] = np.array([True, True, False, False, False, False])
    batch["period_s"] = np.array([0.3, 0.3, 0.3, 1.0, 0.3, 2.0], np.float32)

    def constant(logit):
        network = agent.network(jnp.zeros_like(agent.state["online"]))
        return eqx.tree_at(lambda n: n.out.bias, network, jnp.full(1, logit))

    target, lagged = constant(1.0), constant(0.3)
    value = -0.25 + 1.25 / (1 + np.exp(-0.3))  # values go from -0.25 to 1
    found = agent.label(target, lagged, batch, jax.random.key(0))
    expected = [1, 0, -0.05 + 0.5**0.3 * value, -0.05 + 0.5 * value, 1, 0.25 * value]
    assert found * 1.25 - 0.25 == pytest.approx(np.array(expected), abs=1e-5)

    concurrent = agent_for(gamma_per_s=0.5, target="concurrent")
    batch |= {
        "state_switch": batch["state_capture"], "image_switch": batch["image_capture"],
        "reward_before_switch": np.full(6, -0.02, np.float32),
        "reward_after_switch": reward + np.float32(0.02),
        "latency_s": np.full(6, 0.1, np.float32),
    }  # fmt: skip
    found = concurrent.label(target, lagged, batch, jax.random.key(0))
    factor = 0.5**0.1
    expected = [-0.02 + factor * 1.02, -0.02 + factor * 0.02, *[-0.02 + factor * value] * 4]
    assert found * 1.25 - 0.25 == pytest.approx(np.array(expected), abs=1e-5)


def test_weights_move_as_they_should():
    agent = agent_for(target_lag=3, acting_tau=0.5, target_tau=0.25)
    agent.demonstrations = some_frames(np.random.default_rng(0))
    start = np.array(agent.state["online"])
    target = acting = start
    for updates in (1, 2, 3):
        agent.dispatch(agent.sample(1))
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
        assert (policy.weights["out.weight"] == agent.named(agent.state[name])["out.weight"]).all()


def test_newest_weights_can_act_and_be_kept():
    agent = agent_for(averaged=False)
    agent.demonstrations = some_frames(np.random.default_rng(0))
    agent.dispatch(agent.sample(2))
    agent.sync()
    newest = agent.named(agent.state["online"])["out.weight"]
    assert (agent.policy.weights["out.weight"] == newest).all()
    assert (agent.averaged_policy().weights["out.weight"] == newest).all()


def test_the_auxiliary_head_teaches_what_an_image_shows():
    """Images of one brightness each, which is what is to be told."""
    agent = agent_for(shift=0)
    rng = np.random.default_rng(0)
    replay = new_frames(400)
    for _ in range(50):
        shade = rng.integers(0, 256, (4, 1, 1, 1))
        image = np.broadcast_to(shade, (4, 16, 16, 3)).astype(np.uint8)
        told = np.repeat(shade[:, 0, 0] / 128.0 - 1, 10, axis=1).astype(np.float32)
        replay.add(some_step(rng, image=image, auxiliary=told))
    seen = replay.sample(np.random.default_rng(1), 100)

    def error():
        network = agent.network(agent.state["online"])
        _, predicted = network.encode(seen["state_capture"], seen["image_capture"])
        return np.abs(predicted - seen["auxiliary"]).mean()

    before = error()
    agent.demonstrations = replay
    agent.learn_auxiliary(200)
    assert error() < 0.2 * before
    for name in ("target", "lagged", "acting"):
        assert (agent.state[name] == agent.state["online"]).all()

    without = agent_for(auxiliary_weight=0.0)
    start = np.array(without.state["online"])
    without.demonstrations = replay
    without.learn_auxiliary(200)
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
    agent.demonstrations = some_frames(np.random.default_rng(0))
    batch = agent.sample(6)
    assert batch["index"].shape == (6, 8)
    assert len(batch["state_capture"]) == 12
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
    tried = explored(action, SPACE, COMMANDS, sigma=0.15, share=0.1, rng=rng)
    assert np.abs(tried[:, :4]).max() <= 1
    assert all(row in SETTINGS.tolist() for row in np.unique(tried[:, 4:], axis=0).tolist())
    kept = (tried[:, 4:] == action[:, 4:]).all(axis=1).mean()
    assert 0.9 < kept < 0.96
    assert 0 < tried[:, 6].mean() < 0.01


def test_exploration_without_commands_keeps_to_the_range():
    space = ActionSpace(np.array([-2.0, 0.0]), np.array([2.0, 0.5]), np.zeros((1, 0)))
    action = np.tile([1.9, 0.25], (4000, 1)).astype(np.float32)
    tried = explored(action, space, None, sigma=0.1, share=0.2, rng=np.random.default_rng(0))
    assert (tried.min(axis=0) >= space.low).all()
    assert (tried.max(axis=0) <= space.high).all()
    anywhere = (np.abs(tried[:, 0] - 1.9) > 1).mean()
    assert 0.1 < anywhere < 0.2
    assert np.abs(tried[:, 1] - 0.25).mean() < 0.1  # noise in halves of the range


# --- Replay of images


def new_frames(capacity):
    observed = {"state": ((7,), np.float32), "image": ((16, 16, 3), np.uint8)}
    others = {"action": ((7,), np.float32), "auxiliary": ((10,), np.float32)}
    return FrameReplay(capacity, 4, observed, others, longest=5)


def some_step(rng, image=None, auxiliary=None):
    batch = some_batch(rng, 4)
    image = batch["image_capture"] if image is None else image
    state = batch["state_capture"]
    return step_of(
        observation_capture={"state": state, "image": image},
        observation_next={"state": state + 1, "image": image},
        action=batch["action"],
        reward_after_switch=batch["reward_after_switch"],
        period_s=batch["period_s"],
        notes={"auxiliary": batch["auxiliary"] if auxiliary is None else auxiliary},
        terminated=np.zeros(4, bool),
        truncated=np.zeros(4, bool),
        latency_s=np.zeros(4),
        reward_before_switch=np.zeros(4),
    )


def some_frames(rng):
    replay = new_frames(200)
    for _ in range(20):
        replay.add(some_step(rng))
    return replay


@given(seed=st.integers(0, 10_000), length=st.integers(2, 40))
@settings(max_examples=30)
def test_every_transition_that_is_sampled_was_lived(seed, length):
    """A counter as observation: what follows is one more, also where an episode was cut off."""
    rng = np.random.default_rng(seed)
    n, longest = 3, 4
    kinds = {"state": ((), np.int64)}, {"action": ((), np.int64)}
    replay = FrameReplay(n * length, n, *kinds, longest)
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
        replay.add(
            step_of(
                observation_capture=now, observation_next=now + 1, terminated=terminated,
                truncated=cut,
            )
        )  # fmt: skip
        clock += 1
        clock[done] += 500  # another episode begins elsewhere
        age[done] = 0
        if replay.added < 2:
            continue
        batch = replay.sample(rng, 20)
        alive = ~batch["terminated"]
        assert (batch["state_next"][alive] == batch["state_capture"][alive] + 1).all()
    arrays = {name: array.copy() for name, array in replay.arrays().items()}
    again = FrameReplay(n * length, n, *kinds, longest)
    again.restore(arrays)
    a, b = (r.sample(np.random.default_rng(1), 30) for r in (replay, again))
    assert all((a[name] == b[name]).all() for name in a)
    again.add(
        step_of(
            observation_capture=np.full(n, -7), observation_next=np.full(n, -6),
            terminated=terminated, truncated=cut,
        )
    )  # fmt: skip
    batch = again.sample(rng, 50)
    alive = ~batch["terminated"]
    assert (batch["state_next"][alive] == batch["state_capture"][alive] + 1).all()


# --- Training


def test_a_known_optimum_is_learned():
    """One step: success if x is near the state's, with the gripper closed. Nothing to bootstrap."""
    envs = fake_envs(Layout(("wanted",), ("a",), None), observation="state")
    agent = agent_for(
        envs, batch_size=64, hidden_size=64, acting_tau=0.02, samples=64, learning_rate=1e-3
    )
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
                "state_capture": wanted, "state_next": wanted, "action": action,
                "reward_before_switch": np.zeros(n, np.float32),
                "reward_after_switch": good.astype(np.float32), "terminated": np.ones(n, bool),
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
    config = small(**options)
    result = train(config, tmp_path / "run")
    assert result["steps"] == 320
    assert len(result["measures"]["success"]) == 8
    assert {"success", "duration_s", "completion"} <= set(read_metrics(tmp_path / "run")[0])
    policy = midstride.load(tmp_path / "run")
    envs = config.environment.for_evaluation(1).make(2)
    observation, _ = envs.reset(seed=0)
    assert policy(observation).shape == (2, 7)
    assert environment_from(policy.description["environment"]) == config.environment

    with patch.object(Run, "finish"):  # ends just before its end
        train(config, tmp_path / "again")
    max((tmp_path / "again" / "checkpoint").iterdir()).unlink()  # that of the end
    trainer = Trainer.create(config)
    assert trainer.restore(Run.open(tmp_path / "again"))
    assert trainer.steps == 160
    assert int(trainer.agent.state["updates"]) == 4 + 160 // 4
    assert train(config, tmp_path / "again", resume=True)["steps"] == 320


def test_a_seed_repeats_and_another_differs(tmp_path):
    config = small(steps=160)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(config.with_(seed=seed), tmp_path / name)
    a, b, c = (midstride.load(tmp_path / name).weights for name in "abc")
    assert all((a[name] == b[name]).all() for name in a)
    assert any((a[name] != c[name]).any() for name in a)


SCRIPTED = small(num_envs=16, demonstrations=1600, observation="state")


def demonstrated(training, folder=None):
    """What an agent is shown, by name."""
    trainer = Trainer.create(training, folder)
    return trainer.agent.demonstrations.arrays()


def test_demonstrations_have_successes_and_failures():
    data = demonstrated(SCRIPTED)
    ended = data["terminated"] | data["truncated"]
    reward = data["reward_before_switch"] + data["reward_after_switch"]
    assert 0.15 < (reward > 0.5).sum() / ended.sum() < 0.7
    assert (data["terminated"] & (reward < 0.5)).any()  # ended too early


@pytest.mark.parametrize("options", [{}, {"observation": "image"}, {"target": "concurrent"}])
def test_demonstrations_are_the_same_whatever_is_known(tmp_path, options):
    """And whether they were made now, or kept by a run that is gone on with."""
    config = SCRIPTED.with_(num_envs=4, demonstrations=120, knowledge=(), **options)
    knowing = config.with_(knowledge=("previous_action",), step_penalty=0.01)
    plain, found = demonstrated(config), demonstrated(knowing, tmp_path)
    columns = len(config.environment.make(1).columns)
    assert (found["state_capture"][..., :columns] == plain["state_capture"]).all()
    assert (found["action"] == plain["action"]).all()
    paid = found["reward_before_switch"] + found["reward_after_switch"]
    unpaid = plain["reward_before_switch"] + plain["reward_after_switch"]
    assert unpaid - paid == pytest.approx(0.01, abs=1e-6)
    (kept,) = tmp_path.iterdir()
    stamp = kept.stat().st_mtime_ns
    again = demonstrated(knowing, tmp_path)
    assert kept.stat().st_mtime_ns == stamp
    sampled = [name for name in found if not name.startswith(("last_", "cut_off", "counts"))]
    assert all((again[name] == found[name]).all() for name in sampled)
    kept.write_bytes(b"torn")  # made again
    assert (demonstrated(knowing, tmp_path)["state_capture"] == found["state_capture"]).all()
    other = demonstrated(knowing.with_(seed=1))
    assert (other["state_capture"] != found["state_capture"]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 50}, "image_size that is a multiple of 16, got 50"),
        ({"mode": "frozen"}, "mode must be concurrent or blocking .*, got 'frozen'"),
        ({"demonstration_share": 2}, "demonstration_share must be a number from 0 to 1"),
        ({"samples": 2}, "samples must be a whole number of at least 6"),
        ({"gamma_per_s": 1.0}, "gamma_per_s must be a number from 1e-06 to 0.999999"),
        ({"value_range": (1.0, 0.0)}, "value_range must be a low and a high"),
        ({"latency": "0", "target": "concurrent"}, "needs a latency above 0"),
        ({"mode": "blocking", "target": "concurrent"}, "the concurrent target is for concurrent"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options).check()


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("pointmass", {"actions": "continuous", "latency": "25ms", "knowledge": ("vector_to_go",)}),
        ("gym:Reacher-v5", {"value_range": (-20.0, 0.0), "knowledge": ("previous_action",)}),
        ("gym:Pendulum-v1", {}),  # nobody says what its values can be
        ("gym:InvertedPendulum-v5", {"value_range": (0.0, 100.0), "target": "concurrent",
                                     "latency": "20ms"}),
    ],
)  # fmt: skip
def test_it_trains_wherever_actions_are_continuous(tmp_path, task, options):
    few = {
        "hidden_size": 16, "samples": 8, "batch_size": 8, "num_envs": 4, "steps": 160,
        "demonstrations": 80, "offline_updates": 4, "evaluate_every": 160,
        "evaluation_episodes": 1, "replay_size": 400,
    }  # fmt: skip
    result = train(Training.of(task, "qtopt", **few, **options), tmp_path / "run")
    assert np.isfinite(result["returns"]).all()
    policy = midstride.load(tmp_path / "run")
    envs = environment_from(policy.description["environment"]).make(2)
    assert policy(envs.reset(seed=0)[0]) in envs.action_space


def test_the_benchmarks_ordinary_network_fits_in_the_same_places():
    """What the benchmark compares with is the same critic, with convolutions for eyes."""
    size, rng = benchmark.ENVIRONMENT.image_size, np.random.default_rng(0)
    batch = some_batch(rng, 4, size) | {"label": rng.random(4, np.float32)}
    batch["key"] = jax.random.key(0)
    batch["auxiliary"] = batch["auxiliary"][:, :7]
    shapes = []
    for kind in (QTOpt, benchmark.ConvolutionQTOpt):
        agent = benchmark.make_agent(kind)
        network = agent.network(agent.state["online"])
        jax.eval_shape(agent.fit, agent.state, batch)  # an error if it cannot
        seen = jax.eval_shape(network.encode, batch["state_capture"], batch["image_capture"])
        shapes.append([part.shape for part in seen])
    assert shapes[0] == shapes[1]


# --- It learns


ROW = {"step_penalty": 0.01, "steps": 24_000}  # of Table 1, with less training


@pytest.mark.slow
def test_an_arm_that_knows_what_is_in_flight_learns_to_grasp_and_one_that_does_not_lags(tmp_path):
    unaware, aware = (
        np.mean(
            train(
                Training.of(
                    "grasp", "qtopt", observation="state", latency="240ms", knowledge=knows, **ROW
                ),
                tmp_path / str(len(knows)),
            )["measures"]["success"]
        )
        for knows in ((), ("vector_to_go",))
    )
    assert aware > 0.85
    assert unaware < aware - 0.15


@pytest.mark.slow
def test_it_learns_to_grasp_from_images(tmp_path):
    training = Training.of("grasp", "qtopt", knowledge=("vector_to_go",), **ROW)
    assert np.mean(train(training, tmp_path / "run")["measures"]["success"]) > 0.8
