"""Records: what is in order and what is not, and each source against who was there.

A witness is an environment that writes down every step that it makes.
"""

import dataclasses
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from safetensors.numpy import save_file

from midstride.learn.agents import Training
from midstride.learn.record import FIELDS, Record, joined, load_record, save_record
from midstride.learn.sources import as_record, from_run
from midstride.learn.train import train

LOW, HIGH = np.array([-0.1, -3.0], np.float32), np.array([0.7, 1.0], np.float32)
BOX = spaces.Box(LOW, HIGH)


class Witness(gymnasium.Env):
    """A state that remembers its actions; falls by chance. `seen` is all that happened."""

    def __init__(self, actions=BOX, falls=0.1, seed=0):
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = actions
        self.falls, self.chance, self.seen = falls, np.random.default_rng(seed), []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.chance.normal(size=3).astype(np.float32)
        return self.state, {}

    def step(self, action):
        before = self.state
        self.state = np.sin(2 * self.state + np.sum(action)).astype(np.float32)
        terminated = bool(self.chance.random() < self.falls)
        self.seen.append([before, action, self.state, terminated, False])
        return self.state, 1.0, terminated, False, {}


class Limit(gymnasium.wrappers.TimeLimit):
    """A time limit that the witness hears of."""

    def step(self, action):
        found = super().step(action)
        self.unwrapped.seen[-1][4] = found[3] and not found[2]
        return found


def assert_saw(record, seen, cut_at_the_end=True):
    """The record is what the witness saw."""
    *parts, terminated, truncated = (np.asarray(part) for part in zip(*seen, strict=True))
    assert np.array_equal(record.observation, parts[0])
    np.testing.assert_allclose(record.action, parts[1], atol=1e-6)
    assert np.array_equal(record.observation_next, parts[2])
    assert np.array_equal(record.terminated, terminated)
    truncated = truncated.copy()
    truncated[-1] |= cut_at_the_end and not terminated[-1]
    assert np.array_equal(record.truncated, truncated)
    assert not record.held.any()


def steps(count=6, **changed):
    """Steps of one column that counts, one episode."""
    at, no = np.arange(float(count))[:, None], np.zeros(count, bool)
    usual = {
        "observation": at, "action": at / 10, "observation_next": at + 1, "terminated": no,
        "truncated": no,
    }  # fmt: skip
    return {**usual, **changed}


def at(index, count=6):
    flags = np.zeros(count, bool)
    flags[index] = True
    return flags


# --- What a record tells --------------------------------------------------------------------------


def test_ages_and_ends():
    record = Record(**steps(terminated=at(1), truncated=at(4)))
    assert record.age.tolist() == [0, 1, 0, 1, 2, 0]
    assert record.left.tolist() == [2, 1, 3, 2, 1, 1]
    assert record.ended.tolist() == [False, True, False, False, True, True]
    assert not record.truncated[-1]  # asking changes nothing
    assert (len(record), record.longest) == (6, 3)


def test_a_part_ends_where_it_is_cut():
    record = Record(**steps(terminated=at(2), held=at(0)), within={1: np.arange(6.0)[:, None]})
    part = record[1:5]
    assert part.terminated.tolist() == [False, True, False, False]
    assert part.truncated.tolist() == [False, False, False, True]
    assert part.within[1].ravel().tolist() == [1, 2, 3, 4]
    assert record[:3].truncated.tolist() == [False] * 3  # it has ended there already
    both = joined([part, record])
    assert both.ended.tolist() == [False, True, False, True, False, False, True] + [False] * 2 + [
        True
    ]
    assert both.held.tolist() == [False] * 4 + [True] + [False] * 5
    assert list(both.within) == [1]
    assert not joined([part, Record(**steps())]).within  # of what only one of them holds


# --- Bad data -------------------------------------------------------------------------------------

FLAT = np.zeros((6, 1))
BAD = {
    "out of order": (
        steps(observation=FLAT + np.arange(6)[::-1, None]),
        r"after step 0 is not what is observed before step 1 \(5 of 6 steps are so\): give steps in"
        " the order",
    ),
    "a missing end": (
        steps(observation=np.array([[0.0], [1], [2], [7], [8], [9]]),
              observation_next=np.array([[1.0], [2], [3], [8], [9], [10]])),
        r"after step 2 is not .* before step 3 \(1 of 6 .*mark the last step of each episode",
    ),
    "NaN": (
        steps(observation=np.where(np.arange(6)[:, None] == 3, np.nan, steps()["observation"])),
        r"observation of step 3 is not finite \(1 steps are not\): leave out the episodes",
    ),
    "infinite": (
        steps(action=np.array([0, 0, np.inf, 0, -np.inf, 0])), r"action of step 2 .* \(2 steps"
    ),
    "beyond float32": (
        steps(action=np.array([0, 1e39, 0, 0, 0, 0])), r"action of step 1 .* \(1 steps"
    ),
    "too few": (steps(action=np.zeros(5)), "equally many of everything, got .*5 of action"),
    "no columns": (steps(observation=np.arange(6.0)), r"flat observations.*\(6,\)"),
    "images": (
        steps(observation=np.zeros((6, 4, 4)), observation_next=np.zeros((6, 4, 4))),
        r"flat observations \(steps, columns\)",
    ),
    "other columns after": (steps(observation_next=np.zeros((6, 2))), r"got \(6, 1\) .*\(6, 2\)"),
    "deep actions": (steps(action=np.zeros((6, 1, 1))), r"actions \(steps, size\) or \(steps,\)"),
    "deep ends": (steps(terminated=np.zeros((6, 1), bool)), r"one terminated for each.*\(6, 1\)"),
    "deep held": (steps(held=np.zeros((6, 1), bool)), r"one held for each.*\(6, 1\)"),
    "both": (
        steps(terminated=at(4), truncated=at(4)), "step 4 is both terminated and truncated"
    ),
    "empty": ({name: array[:0] for name, array in steps().items()}, "empty: it has no step"),
    "words": (steps(action=np.array(["up"] * 6)), "action must be numbers, got <U2"),
    "ends in words": (steps(terminated=np.array(["no"] * 6)), "terminated must be true or false"),
    "half an end": (steps(truncated=np.full(6, 0.5)), "truncated must be true or false"),
    "ends of NaN": (steps(truncated=np.full(6, np.nan)), "truncated must be true or false"),
    "ragged": (steps(observation=[[0.0]] * 5 + [[0.0, 1.0]]), "rows of several lengths"),
    "one number": (steps(1, action=3.0), r"actions \(steps, size\) or \(steps,\), got \(\)"),
    "within too short": (steps(within={2: np.zeros((5, 1))}), "5 of what is observed 2 ticks"),
    "within too wide": (steps(within={2: np.zeros((6, 3))}), r"\(6, 3\) of what is observed 2"),
    "within of NaN": (steps(within={2: FLAT + np.nan}), "observed 2 ticks later of step 0 is not"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_data_is_refused_in_a_sentence(kind):
    data, sentence = BAD[kind]
    with pytest.raises(ValueError, match=sentence) as caught:
        Record(**data)
    assert "\n" not in str(caught.value)


def test_zeros_and_ones_stand_for_ends():
    record = Record(**steps(terminated=np.array([0, 0, 1, 0, 0, 0]), truncated=np.zeros(6)))
    assert record.terminated.tolist() == at(2).tolist()


def test_a_dict_of_arrays():
    assert len(as_record(steps(), BOX)) == 6
    missing = {name: array for name, array in steps().items() if name != "observation_next"}
    with pytest.raises(ValueError, match="the data have no observation_next: give arrays obs"):
        as_record(missing, BOX)
    with pytest.raises(ValueError, match="an unknown 'reward'"):
        as_record(steps(reward=np.zeros(6)), BOX)
    record = Record(**steps())
    assert as_record(record, BOX) is record


# --- Stable-Baselines3 ----------------------------------------------------------------------------


def sb3(kind, env, calls=(150,), **options):
    """A model that has only acted at random, and the witnesses of its environments."""
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    usual = {"learning_starts": 10**6, "device": "cpu", "policy_kwargs": {"net_arch": [4]}}
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    model = getattr(stable_baselines3, kind)(policy, env, seed=0, **{**usual, **options})
    for count in calls:
        model.learn(count)
    return model


def vector(count):
    common = pytest.importorskip("stable_baselines3.common.vec_env")
    return common.DummyVecEnv(
        [lambda i=i: Limit(Witness(seed=i), max_episode_steps=9) for i in range(count)]
    )


def test_a_replay_buffer_is_what_happened():
    env = Limit(Witness(), max_episode_steps=9)
    model = sb3("SAC", env, buffer_size=500)
    record = as_record(model.replay_buffer, BOX)
    assert_saw(record, env.unwrapped.seen)
    assert record.terminated.sum() > 5
    assert record.truncated.sum() > 5
    assert all(action in BOX for action in record.action)  # rounding may not go beyond a bound


def test_a_full_ring_begins_with_the_oldest():
    env = Limit(Witness(), max_episode_steps=9)
    model = sb3("SAC", env, buffer_size=40)
    assert model.replay_buffer.full
    assert model.replay_buffer.pos == 150 % 40
    assert_saw(as_record(model.replay_buffer, BOX), env.unwrapped.seen[-40:])


def test_several_environments_one_after_another():
    envs = vector(3)
    model = sb3("SAC", envs, buffer_size=90)  # 30 of each
    record = as_record(model.replay_buffer, BOX)
    for i, env in enumerate(envs.envs):
        assert_saw(record[30 * i : 30 * (i + 1)], env.unwrapped.seen[-30:])
    assert record.ended[[29, 59, 89]].all()


def test_choices_of_a_replay_buffer():
    env = Limit(Witness(spaces.Discrete(4)), max_episode_steps=9)
    record = as_record(sb3("DQN", env, buffer_size=500).replay_buffer, env.action_space)
    assert record.action.dtype.kind == "i"
    assert_saw(record, env.unwrapped.seen)


def test_a_second_call_of_learn_begins_an_episode():
    """Stable-Baselines3 resets there, and its buffer does not say so."""
    env = Limit(Witness(falls=0.0), max_episode_steps=40)
    record = as_record(sb3("SAC", env, (50, 30), buffer_size=500).replay_buffer, BOX)
    assert np.flatnonzero(record.truncated).tolist() == [39, 49, 79]


def test_time_limits_that_a_buffer_was_told_to_forget_are_ends():
    env = Limit(Witness(falls=0.0), max_episode_steps=40)
    options = {"replay_buffer_kwargs": {"handle_timeout_termination": False}}
    record = as_record(sb3("SAC", env, (100,), **options).replay_buffer, BOX)
    assert np.flatnonzero(record.terminated).tolist() == [39, 79]


def test_buffers_that_hold_too_little_are_refused():
    env = Limit(Witness(), max_episode_steps=9)
    thrifty = sb3(
        "SAC", env, (20,), buffer_size=99, optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    )  # fmt: skip
    with pytest.raises(ValueError, match="made with optimize_memory_usage=False"):
        as_record(thrifty.replay_buffer, BOX)
    empty = sb3("SAC", env, ())
    with pytest.raises(ValueError, match="the replay buffer is empty: train first"):
        as_record(empty.replay_buffer, BOX)
    as_dict = gymnasium.wrappers.TransformObservation(
        env, lambda seen: {"state": seen}, spaces.Dict({"state": env.observation_space})
    )
    with pytest.raises(ValueError, match="holds dicts, and a record needs flat observations"):
        as_record(sb3("SAC", as_dict, (20,)).replay_buffer, BOX)
    from stable_baselines3 import PPO

    others = PPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu").rollout_buffer
    for wrong in (empty, others, [1, 2, 3], None):  # a model is no buffer
        with pytest.raises(ValueError, match=r"no replay buffer of .*: give model.replay_buffer"):
            as_record(wrong, BOX)


# --- Files ----------------------------------------------------------------------------------------


def test_a_file_holds_a_record(tmp_path):
    record = Record(**steps(terminated=at(2), held=at(0), within={1: FLAT, 3: FLAT + 1}))
    save_record(record, tmp_path / "steps.safetensors")
    found = as_record(str(tmp_path / "steps.safetensors"), BOX)
    for name in FIELDS:
        assert np.array_equal(getattr(found, name), getattr(record, name))
        assert getattr(found, name).dtype == getattr(record, name).dtype
    assert sorted(found.within) == [1, 3]
    assert (found.within[3] == 1).all()


def test_a_file_of_others_needs_no_checksum(tmp_path):
    path = tmp_path / "log.safetensors"
    flags = {name: steps()[name].astype(np.uint8) for name in ("terminated", "truncated")}
    save_file(steps(**flags), path)
    assert np.array_equal(load_record(path).observation, steps()["observation"])


def test_files_that_are_no_records_are_refused(tmp_path):
    path = tmp_path / "log.safetensors"

    def refused(arrays, sentence):
        save_file(arrays, path)
        with pytest.raises(ValueError, match=sentence) as caught:
            load_record(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)

    some = steps()
    refused({"weights": FLAT}, "is no record: it has no observation, action")
    refused({n: a for n, a in some.items() if n != "truncated"}, "it has no truncated; it needs")
    refused({**some, "within.two": FLAT}, "an unknown 'within.two'")
    refused({**some, "reward": FLAT}, "an unknown 'reward'; arrays are observation")
    refused({**some, "within.2": FLAT[:3]}, "cannot be used: .*3 of what is observed 2 ticks")
    refused({**some, "action": some["terminated"]}, "cannot be used: action must be numbers")
    refused({**some, "observation": FLAT}, "cannot be used: what is observed after step 0")
    save_record(Record(**some), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + b"xxxxx")
    with pytest.raises(ValueError, match="is damaged: its checksum is of another content"):
        load_record(path)
    path.write_bytes(whole[:40])
    with pytest.raises(ValueError, match="is damaged"):
        load_record(path)
    with pytest.raises(ValueError, match="nowhere"):
        as_record(tmp_path / "nowhere.safetensors", BOX)


# --- Minari ---------------------------------------------------------------------------------------


# It would like to know who wrote the dataset.
NO_WARNINGS = pytest.mark.filterwarnings("ignore::UserWarning:minari")


@pytest.fixture
def minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    pytest.importorskip("h5py")
    return pytest.importorskip("minari")


def collected(minari, env, count):
    """A dataset of `count` steps, of whatever is done."""
    env = minari.DataCollector(env)
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(count):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    return env.create_dataset("test/witness-v0")


@NO_WARNINGS
def test_a_dataset_of_minari_is_what_happened(minari):
    env = Limit(Witness(), max_episode_steps=9)
    record = as_record(collected(minari, env, 60), BOX)
    assert_saw(record, env.unwrapped.seen)
    assert record.terminated.any()
    assert record.truncated.sum() > 1


@NO_WARNINGS
def test_a_dataset_of_choices(minari):
    env = Limit(Witness(spaces.Discrete(3)), max_episode_steps=9)
    record = as_record(collected(minari, env, 30), env.action_space)
    assert_saw(record, env.unwrapped.seen)


@NO_WARNINGS
def test_a_dataset_of_dicts_is_refused(minari):
    env = gymnasium.wrappers.TransformObservation(
        Witness(), lambda seen: {"state": seen}, spaces.Dict({"state": Witness().observation_space})
    )
    with pytest.raises(ValueError, match="observations that are a dict, and a record needs flat"):
        as_record(collected(minari, env, 30), BOX)


@dataclasses.dataclass
class Episodes:
    """As much of a dataset of Minari as is asked for."""

    held: list

    def iterate_episodes(self):
        return iter(self.held)


@dataclasses.dataclass
class Episode:
    observations: np.ndarray
    actions: np.ndarray
    terminations: tuple = (0, 0, 0)
    truncations: tuple = (0, 0, 1)


def test_datasets_that_do_not_add_up_are_refused():
    for held, sentence in (
        ([], "the dataset holds no step"),
        ([Episode(np.zeros((1, 2)), np.zeros((0, 1)))], "the dataset holds no step"),
        ([Episode(np.zeros((4, 8, 8)), np.zeros((3, 1)))], r"of shape \(8, 8\), not flat ones"),
        ([Episode(np.zeros((3, 2)), np.zeros((3, 1)))], "3 observations and 3 actions: it needs"),
    ):
        with pytest.raises(ValueError, match=sentence):
            as_record(Episodes(held), BOX)
    # Terminated and truncated at once, as Gymnasium allows: it has ended.
    record = as_record(Episodes([Episode(FLAT[:4], FLAT[:3], (0, 0, 1))]), BOX)
    assert record.terminated.tolist() == [False, False, True]
    assert not record.truncated.any()


# --- One of our runs ------------------------------------------------------------------------------


def witness(**options: Any) -> Any:
    return Limit(Witness(), max_episode_steps=9)


def chooser(**options: Any) -> Any:
    return Limit(Witness(spaces.Discrete(3)), max_episode_steps=9)


gymnasium.register("MidstrideWitness-v0", witness)
gymnasium.register("MidstrideChoices-v0", chooser)
TINY = {
    "steps": 64, "learning_starts": 32, "batch_size": 8, "evaluation_episodes": 2,
    "evaluate_every": 64, "step": 0.02, "hidden": (4,),
}  # fmt: skip


@pytest.fixture
def witnesses(monkeypatch):
    """Those that are made while a run trains, first to last."""
    made = []
    begin = Witness.__init__

    def remembered(self, *arguments, **options):
        begin(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Witness, "__init__", remembered)
    return made


def a_run(folder, agent, task="MidstrideWitness-v0", keep=True, **options):
    train(Training.of(f"gym:{task}", agent, **{**TINY, **options}), folder, keep_checkpoint=keep)
    return folder


@pytest.mark.parametrize(
    ("agent", "options"),
    [
        ("sac", {"replay_size": 500}),
        ("sac", {"replay_size": 40}),  # a full ring
        ("dqn", {"replay_size": 60, "num_envs": 2, "levels": 3}),  # choices of a Box
        ("dqn", {"replay_size": 500, "task": "MidstrideChoices-v0", "num_envs": 1}),
    ],
)
def test_a_run_is_what_happened(tmp_path, witnesses, agent, options):
    count = options.get("num_envs", 1)
    folder = a_run(tmp_path / "run", agent, **options)
    space = witnesses[0].action_space
    record = as_record(folder, space, 0.02)
    kept = min(64, options["replay_size"]) // count
    trained = [one for one in witnesses if len(one.seen) == 64 // count][:count]
    assert len(trained) == count
    for i, one in enumerate(trained):
        assert_saw(record[kept * i : kept * (i + 1)], one.seen[-kept:])
    assert len(record) == kept * count


def test_an_episode_that_ends_inside_of_a_period_leaves_no_part_of_it(tmp_path, witnesses):
    """A period of two steps, a time limit of nine: the ninth is half a period."""
    folder = a_run(tmp_path / "run", "sac", replay_size=500, period=0.04)
    record = from_run(folder, BOX)
    seen = np.array([step[2] for one in witnesses for step in one.seen])
    assert (seen == record.observation_next[:, None]).all(axis=2).any(axis=1).all()
    follows = (record.observation_next[:-1] == record.observation[1:]).all(axis=1)
    assert np.array_equal(follows, ~record.ended[:-1])
    assert record.longest <= 4
    with pytest.raises(ValueError, match="last 40 ms, and here 20 ms: give the period"):
        from_run(folder, BOX, 0.02)


def test_runs_that_are_no_records_are_refused(tmp_path):
    def refused(folder, sentence, space=BOX):
        with pytest.raises(ValueError, match=sentence) as caught:
            as_record(folder, space)
        assert "\n" not in str(caught.value)

    good = a_run(tmp_path / "good", "sac", replay_size=500)
    config = good / "config.json"
    text = config.read_text()
    for before, after, sentence in (
        ('"latency": "0"', '"latency": "40ms"', "was trained at a latency of 40ms: give a run wi"),
        ('"latency": "0"', '"latency": "lost:0.1:0"', "was trained at a latency of lost:0.1:0"),
        ('"knowledge": []', '"knowledge": ["previous_action"]', "observes previous_action too"),
        ('"stack_actions": 0', '"stack_actions": 2', "stacks what it observed"),
        ("gym:MidstrideWitness-v0", "cartpole", "is a run of cartpole: give one of a task gym:ID"),
        ('"agent": "sac"', '"agent": "qtopt"', "what qtopt remembers is no record"),
    ):
        assert before in text
        config.write_text(text.replace(before, after))
        refused(good, sentence)
    config.write_text(text)
    refused(good, "has other columns than a run of sac", spaces.Box(-1, 1, (3,)))
    path = next((good / "checkpoint").iterdir())
    path.write_bytes(path.read_bytes()[:-9])
    refused(good, re.escape(str(path)))
    refused(a_run(tmp_path / "done", "sac", keep=False), "keeps no checkpoint")
    (tmp_path / "nothing").mkdir()
    refused(tmp_path / "nothing", "is not the folder of a run")
