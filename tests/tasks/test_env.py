"""The Gymnasium face: contract, reset semantics, autoreset, equality of one and many."""

import copy
import os
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

import midstride
from midstride.flight import Flight
from midstride.knowledge import FEATURES
from midstride.latency import Fixed, OnScaleOf
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.registry import settings_of
from midstride.tasks.single import TaskEnv
from tests.helpers import (
    ALL_KNOWLEDGE,
    ENV_IDS,
    EVERY_TASK,
    TASK_NAMES,
    assert_columns_alive,
    random_rollout,
    resident_kb,
)

CONCURRENT = {
    "observe_switch": True,
    "latency": midstride.PerEpisode((0.0, 0.005, 0.025, 0.05)),
    "execution": 0.025,
    "knowledge": ALL_KNOWLEDGE,
    "stack_observations": 2,
    "stack_actions": 2,
}


HOLDING = {"mode": "hold", "latency": 0.05, "period": 0.05, "knowledge": ALL_KNOWLEDGE}


@pytest.mark.parametrize("options", [{}, CONCURRENT, HOLDING, {"actions": "continuous"}])
@pytest.mark.parametrize("env_id", ENV_IDS)
@pytest.mark.filterwarnings("ignore:.*A Box observation space m..imum value")
def test_gymnasium_contract(env_id, options):
    env = gymnasium.make(env_id, render_mode="rgb_array", **options)
    check_env(env.unwrapped)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_make_alone_is_blocking(env_id):
    env = gymnasium.make(env_id).unwrapped
    assert env.vector.timing.latency_bounds_ticks == (0, 0)
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[4]["latency_s"] == 0


@pytest.mark.parametrize("task", EVERY_TASK)
def test_no_column_is_dead(task):
    env = TaskVectorEnv(task, num_envs=8, **CONCURRENT)
    first, _ = env.reset(seed=0)
    steps = random_rollout(env, 120)
    observations = np.array([first, *(step[0] for step in steps)])
    assert_columns_alive(observations, env.columns)
    assert_columns_alive(np.array([s[4]["observation_switch"] for s in steps]), env.columns)
    assert (np.abs(observations) < 1e3).all()


@pytest.mark.parametrize("latency", ["step:5ms,250ms", "lost:0.2:250ms", "jitter:150ms,100ms"])
@pytest.mark.parametrize("task", EVERY_TASK)
def test_no_column_is_dead_where_decisions_are_pending(task, latency):
    if latency.endswith(":250ms"):  # always the same: the selection time says nothing
        knowledge = ("previous_action", "pending_actions", "vector_to_go")
    else:
        knowledge = FEATURES
    env = TaskVectorEnv(task, num_envs=8, latency=latency, period=0.1, knowledge=knowledge)
    env.reset(seed=0)
    observations = np.array([step[0] for step in random_rollout(env, 80)])
    assert len(env.layout.blocks["pending_actions"]) == 2 * len(env.layout.action)
    assert_columns_alive(observations, env.columns)


def test_a_dead_slot_of_pending_actions_is_noticed(monkeypatch):
    """As if two decisions were never pending: only the newest is shown."""

    def pending(self, slots, own=Flight.pending):
        there, actions = own(self, slots)
        return there, actions * (np.arange(slots) == slots - 1)[:, None]

    monkeypatch.setattr(Flight, "pending", pending)
    with pytest.raises(AssertionError, match="pending_action:2"):
        test_no_column_is_dead_where_decisions_are_pending("cartpole", "step:5ms,250ms")


def test_a_policy_run_at_a_longer_latency_knows_what_it_was_trained_to_know():
    """Its columns stay, and mean the same: the decision so many observations ago."""
    model = OnScaleOf(Fixed(0.1), Fixed(0.2))
    env = TaskVectorEnv("cartpole", latency=model, actions=3, knowledge=("pending_actions",))
    env.reset(seed=0)
    assert env.columns[-3:] == ("pending_action:1:0", "pending_action:1:1", "pending_action:1:2")
    for action, pending in zip((0, 2, 1, 2), (1, 2, 3, 3), strict=True):
        observation, *_, info = env.step(np.array([action]))
        assert observation[0, -3:].tolist() == np.eye(3)[action].tolist()
        assert info["pending"][0] == pending


def test_a_dead_column_is_noticed():
    env = TaskVectorEnv("cartpole", knowledge=("selection_time",), latency=0.0)
    first, _ = env.reset(seed=0)
    observations = np.array([first, *(step[0] for step in random_rollout(env, 50))])
    with pytest.raises(AssertionError, match="selection_time"):
        assert_columns_alive(observations, env.columns)


@pytest.mark.parametrize("task", TASK_NAMES)
def test_nothing_in_flight_survives_a_reset(task):
    env = TaskVectorEnv(task, num_envs=3, **CONCURRENT)
    env.reset(seed=1)
    random_rollout(env, 25, seed=1)
    used, _ = env.reset(seed=5)
    for block in ("previous_action", "selection_time", "vector_to_go", "past_actions"):
        assert (used[:, env.layout.slices[block]] == 0).all(), block
    base = used[:, env.layout.slices["base"]]
    assert (used[:, env.layout.slices["past_observations"]] == np.tile(base, 2)).all()

    fresh_env = TaskVectorEnv(task, num_envs=3, **CONCURRENT)
    fresh, _ = fresh_env.reset(seed=5)
    assert (used == fresh).all()
    for a, b in zip(random_rollout(env, 20), random_rollout(fresh_env, 20), strict=True):
        assert (a[0] == b[0]).all()
        assert (a[1] == b[1]).all()


@pytest.mark.parametrize("task", TASK_NAMES)
def test_nothing_in_flight_survives_an_autoreset(task):
    """Right after an autoreset the actuators hold: target and position agree."""
    env = TaskVectorEnv(task, num_envs=2, latency=0.05, period=0.1, knowledge=("vector_to_go",))
    env.reset(seed=0)
    truncated = np.zeros(2, bool)
    while not truncated.any():
        observation, _, _, truncated, _ = env.step(np.array([4, 4]))
    assert (observation[:, env.layout.slices["vector_to_go"]] == 0).all()
    assert (env.plant.target == env.plant.qpos[:, env.task.controlled.qpos]).all()


@given(
    task=st.sampled_from(TASK_NAMES),
    latency=st.integers(0, 10),
    knowledge=st.sets(st.sampled_from(ALL_KNOWLEDGE)),
    stacks=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    seed=st.integers(0, 1000),
)
def test_observations_keep_to_their_space_and_seed(task, latency, knowledge, stacks, seed):
    def rollout():
        env = TaskVectorEnv(
            task,
            num_envs=2,
            latency=latency * 0.005,
            period=0.05,
            knowledge=knowledge,
            stack_observations=stacks[0],
            stack_actions=stacks[1],
        )
        first, _ = env.reset(seed=seed)
        return env, [first, *(step[0] for step in random_rollout(env, 8, seed))]

    env, observations = rollout()
    for observation in observations:
        assert observation in env.observation_space
    for a, b in zip(observations, rollout()[1], strict=True):
        assert (a == b).all()


def test_seeds_differ():
    env = TaskVectorEnv("cartpole", num_envs=2)
    first, _ = env.reset(seed=0)
    assert (first[0] != first[1]).any()
    again, _ = env.reset()
    assert (first != again).any()


def test_stacked_action_is_the_previous_action():
    env = TaskVectorEnv("cartpole", latency=0.05, knowledge=("previous_action",), stack_actions=2)
    env.reset(seed=0)
    seen = [env.step(np.array([action]))[0][0] for action in (1, 3, 0)]
    slices = env.layout.slices
    for observation, newest in zip(seen, (1, 3, 0), strict=True):
        assert observation[slices["previous_action"]].argmax() == newest
        assert (observation[slices["past_actions"]][:5] == np.eye(5)[newest]).all()
    assert (seen[2][slices["past_actions"]][5:] == np.eye(5)[3]).all()


@pytest.mark.parametrize("task", TASK_NAMES)
def test_stacked_observations_are_those_returned_before(task):
    env = TaskVectorEnv(task, num_envs=2, latency=0.025, stack_observations=2)
    base = env.layout.slices["base"]
    first, _ = env.reset(seed=0)
    returned = [first[:, base], first[:, base]]
    for action in (4, 4, 0, 1):
        observation, *_ = env.step(np.array([action, 2]))
        past = observation[:, env.layout.slices["past_observations"]]
        assert (past == np.concatenate([returned[-1], returned[-2]], axis=1)).all()
        returned.append(observation[:, base])


def test_continuous_actions_are_clipped():
    wild, tame = (
        TaskVectorEnv("pointmass", actions="continuous", knowledge=ALL_KNOWLEDGE) for _ in "ab"
    )
    wild.reset(seed=0)
    tame.reset(seed=0)
    assert (wild.step(np.array([[7.0, -3.0]]))[0] == tame.step(np.array([[1.0, -1.0]]))[0]).all()


@pytest.mark.parametrize(
    ("task", "period"), [("pointmass", 0.1), ("cartpole", 0.05), ("pendulum", 0.05)]
)
def test_a_latency_can_fill_the_tasks_own_period(task, period):
    env = TaskVectorEnv(task, latency=period)
    env.reset(seed=0)
    *_, info = env.step(np.array([1]))
    assert info["latency_s"][0] == info["period_s"][0] == pytest.approx(period)
    assert (info["pending"][0], info["reward_after_switch"][0]) == (0, 0)


def test_what_would_arrive_after_the_end_never_comes_into_force():
    knows = ("previous_action", "vector_to_go")
    env = TaskVectorEnv(
        "cartpole", latency=0.05, period=0.055, knowledge=knows, autoreset_mode="Disabled"
    )
    observation, _ = env.reset(seed=0)
    truncated = np.array([False])
    while not truncated.all():
        before = observation
        action = 1 if before[0, env.layout.slices["previous_action"]][4] else 4
        observation, *_, truncated, _ = env.step(np.array([action]))
    at = env.layout.slices["previous_action"]
    assert (observation[0, at] == before[0, at]).all()


def test_a_period_is_cut_at_the_end():
    env = TaskVectorEnv("cartpole", latency=0.05, period=0.055, autoreset_mode="Disabled")
    env.reset(seed=0)
    total_s, truncated = 0.0, np.array([False])
    while not truncated.all():
        *_, truncated, info = env.step(np.array([4]))
        total_s += info["period_s"][0]
    assert total_s == pytest.approx(10.0)
    assert info["latency_s"][0] == info["period_s"][0] == pytest.approx(0.045)


def test_of_a_switch_beyond_the_end_the_last_instant_is_observed():
    """The decision never came into force: what was in force is observed, at the end."""
    env = TaskVectorEnv(
        "cartpole",
        observe_switch=True,
        latency=0.05,
        period=0.055,
        knowledge=ALL_KNOWLEDGE,
        autoreset_mode="Disabled",
    )
    env.reset(seed=0)
    truncated = np.array([False])
    for k in range(182):
        assert not truncated.any()
        observation, *_, truncated, info = env.step(np.array([4 if k < 181 else 1]))
    assert truncated.all()
    assert observation[0, env.layout.slices["previous_action"]].tolist() == [0, 0, 0, 0, 1]
    assert (info["observation_switch"] == observation).all()


def test_knowledge_at_the_switch_is_of_the_new_action():
    env = TaskVectorEnv("cartpole", observe_switch=True, latency=0.025, knowledge=ALL_KNOWLEDGE)
    env.reset(seed=0)
    env.step(np.array([4]))
    info = env.step(np.array([1]))[4]
    at_switch, slices = info["observation_switch"][0], env.layout.slices
    assert at_switch[slices["previous_action"]].tolist() == [0, 1, 0, 0, 0]
    assert at_switch[slices["selection_time"]] == 1
    assert at_switch[slices["vector_to_go"]] == pytest.approx(-0.5)  # nothing of it done


@pytest.mark.parametrize("env_id", ENV_IDS)
@pytest.mark.parametrize("mode", list(AutoresetMode)[:2])
def test_many_equal_one_by_one(env_id, mode):
    """The native vector environment against Gymnasium's own loop over single environments."""
    options = {**CONCURRENT, "latency": midstride.PerStep((0.0, 0.025, 0.05))}
    native = gymnasium.make_vec(env_id, num_envs=3, autoreset_mode=mode, **options)
    loop = gymnasium.make_vec(
        env_id,
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        **options,
    )
    assert native.single_observation_space == loop.single_observation_space
    assert (native.reset(seed=7)[0] == loop.reset(seed=7)[0]).all()
    native.action_space.seed(0)
    ends = 0
    for _ in range(int(1.3 * native.task.time_limit_s / 0.05)):
        actions = native.action_space.sample()
        a, b = native.step(actions), loop.step(actions)
        for ours, theirs in zip((a[0], *a[2:4]), (b[0], *b[2:4]), strict=True):
            assert np.array_equal(ours, theirs)
        assert a[1] == pytest.approx(b[1], abs=1e-12)  # summed in another order
        for key in ("latency_s", "period_s", "observation_switch"):
            if mode is AutoresetMode.SAME_STEP:
                stepped = ~(a[2] | a[3])  # a finished environment's entry is in final_info
                assert np.array_equal(a[4][key][stepped], b[4].get(key, a[4][key])[stepped])
            elif f"_{key}" in b[4]:
                assert np.array_equal(a[4][f"_{key}"], b[4][f"_{key}"])
                assert np.array_equal(a[4][key][a[4][f"_{key}"]], b[4][key][b[4][f"_{key}"]])
        if "final_obs" in b[4]:
            assert np.array_equal(a[4]["_final_obs"], b[4]["_final_obs"])
            for i in np.flatnonzero(b[4]["_final_obs"]):
                assert np.array_equal(a[4]["final_obs"][i], b[4]["final_obs"][i])
                assert np.array_equal(
                    a[4]["final_info"]["observation_switch"][i],
                    b[4]["final_info"]["observation_switch"][i],
                )
        ends += int((a[2] | a[3]).sum())
    assert ends >= 3


def test_the_last_observation_is_not_lost():
    same = TaskVectorEnv("pointmass", num_envs=2)
    off = TaskVectorEnv("pointmass", num_envs=2, autoreset_mode="Disabled")
    same.reset(seed=0)
    off.reset(seed=0)
    truncated = np.zeros(2, bool)
    while not truncated.any():
        observation, _, _, truncated, info = same.step(np.array([1, 2]))
        true_last, *_ = off.step(np.array([1, 2]))
    assert (info["final_obs"] == true_last).all()
    assert (observation != true_last).any()
    with pytest.raises(RuntimeError, match="episode is over: reset it"):
        off.step(np.array([1, 2]))


def test_some_environments_can_be_reset():
    env = TaskVectorEnv("cartpole", num_envs=3, autoreset_mode="Disabled")
    env.reset(seed=0)
    before = random_rollout(env, 5)[-1][0]
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert (after[[0, 2]] == before[[0, 2]]).all()
    assert (after[1] != before[1]).any()


@pytest.mark.parametrize("mask", [[True], True, [1, 0, 2], [[True, False, True]], [False] * 3])
def test_bad_reset_mask(mask):
    env = TaskVectorEnv("cartpole", num_envs=3)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="reset_mask must be 3 booleans"):
        env.reset(options={"reset_mask": mask})


def test_the_first_reset_is_of_all():
    env = TaskVectorEnv("cartpole", num_envs=2)
    with pytest.raises(ValueError, match="first reset must be of all"):
        env.reset(options={"reset_mask": np.array([True, False])})


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_starts_afresh(duplicate):
    env = TaskEnv("cartpole", latency=0.025, knowledge=(k for k in ALL_KNOWLEDGE))
    env.reset(seed=3)
    env.step(1)
    twin = duplicate(env)
    assert (env.reset(seed=1)[0] == twin.reset(seed=1)[0]).all()
    for action in (0, 4, 2):
        assert (env.step(action)[0] == twin.step(action)[0]).all()


def test_gymnasium_wrappers_understand_infos():
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        gymnasium.make_vec("midstride/PointMass-v0", num_envs=2)
    )
    envs.reset(seed=0)
    for _ in range(51):
        *_, info = envs.step(envs.action_space.sample())
        if "episode" in info:
            break
    assert (info["episode"]["l"] == 50).all()
    listed = gymnasium.wrappers.vector.DictInfoToList(
        gymnasium.make_vec("midstride/PointMass-v0", num_envs=2, observe_switch=True)
    )
    listed.reset(seed=0)
    *_, infos = listed.step(listed.action_space.sample())
    assert [set(i) >= {"latency_s", "observation_switch"} for i in infos] == [True, True]


def test_infos_and_observations_are_not_overwritten():
    env = TaskVectorEnv("cartpole", 2, observe_switch=True, latency=0.025, knowledge=ALL_KNOWLEDGE)
    first, _ = env.reset(seed=0)
    kept = first.copy()
    observation, reward, _, _, info = env.step(np.array([0, 4]))
    snapshot = observation.copy(), reward.copy(), {k: np.copy(v) for k, v in info.items()}
    random_rollout(env, 5)
    assert (first == kept).all()
    assert (observation == snapshot[0]).all()
    assert (reward == snapshot[1]).all()
    for key, value in snapshot[2].items():
        assert np.array_equal(info[key], value), key


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_stable_baselines3_contract(env_id):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(gymnasium.make(env_id, **CONCURRENT).unwrapped)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "juggling"}, "unknown task"),
        ({"latency": 12}, "12 s is as long as an episode of 10 s, or longer: nothing would be"),
        ({"latency": 60}, "longer than 1000 periods of 50 ms: did you mean 60ms"),
        ({"thinker": "quick"}, "thinker must be one of pipelined, serial, got 'quick'"),
        ({"mode": "frozen"}, "mode must be concurrent or hold .*, got 'frozen'"),
        ({"mode": "blocking"}, "blocking, the world frozen .*, is concurrent with latency 0"),
        ({"frames": 3}, "frames is of pictures, and nothing reads it with observation state"),
        ({"image_size": 32}, "give observation image, or leave image_size out"),
        ({"mode": "hold", "latency": "lost:0.1:25ms"}, "waits for every decision, so none can be"),
        ({"latency": 0.003}, "nearest valid times are 0 ms and 5 ms"),
        ({"latency": -0.005}, "at least 0 s"),
        ({"latency": float("nan")}, "latency must be a latency such as 25ms"),
        ({"latency": "50"}, "did you mean 50ms"),
        ({"latency": "soon"}, "is not a time"),
        ({"execution": 0.0}, "would last 0 s"),
        ({"execution": 0.01, "period": 0.05}, "either a period or an execution"),
        ({"knowledge": ("magic",)}, "unknown knowledge"),
        ({"actions": 2}, "from 3 to 8"),
        ({"actions": 9}, "from 3 to 8"),
        ({"actions": "many"}, "actions must be a whole number or continuous, got 'many'"),
        ({"stack_actions": 7}, "from 0 to 4"),
        ({"tick": 0.0}, "longer than 0 s"),
        ({"tick": 0.02, "latency": 0.005}, "nearest valid times are 0 ms and 20 ms"),
        ({"render_mode": "human"}, "render_mode"),
        ({"num_envs": 0}, "num_envs must be a whole number"),
        ({"num_envs": "3"}, "num_envs must be a whole number"),
        ({"threads": -1}, "threads must be a whole number"),
        ({"threads": 0}, "threads must be a whole number"),
        ({"knowledge": None}, "knowledge must be names"),
        ({"period": True}, "period must be a time such as 25ms"),
        ({"latency": 1e8, "execution": 0.05}, "too long"),
        (
            {"latency": "25", "execution": "0"},
            "as an episode of 10 s, or longer: did you mean 25ms",
        ),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        TaskVectorEnv(**{"task": "cartpole", **options})


@pytest.mark.parametrize("actions", [[5], [-1], [0.5], [0, 1]])
def test_bad_discrete_actions(actions):
    env = TaskVectorEnv("cartpole")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions must be"):
        env.step(np.array(actions))


def test_bad_continuous_actions():
    env = TaskVectorEnv("pointmass", actions="continuous")
    env.reset(seed=0)
    for bad in ([[np.nan, 0]], [[0.0]], [0.0, 0.0]):
        with pytest.raises(ValueError, match="actions must be 1 x 2 numbers"):
            env.step(np.array(bad))


def test_step_before_reset():
    with pytest.raises(RuntimeError, match="call reset before"):
        TaskVectorEnv("cartpole").step(np.array([0]))


# --- Pictures


@pytest.mark.parametrize("task", EVERY_TASK)
def test_hold_without_latency_is_blocking(task):
    """To the last bit: there is nothing to rest for."""
    blocking = TaskVectorEnv(task, num_envs=3, knowledge=ALL_KNOWLEDGE)
    holding = TaskVectorEnv(task, num_envs=3, knowledge=ALL_KNOWLEDGE, mode="hold")
    assert (blocking.reset(seed=4)[0] == holding.reset(seed=4)[0]).all()
    for a, b in zip(random_rollout(blocking, 30), random_rollout(holding, 30), strict=True):
        for one, other in zip(a[:4], b[:4], strict=True):
            assert (one == other).all()


def test_hold_executes_for_the_period_and_thinks_on_top_of_it():
    """Point mass, tau 100 ms: at rest while it thinks, 100 ms of a displacement of 0.3 m then."""
    env = TaskVectorEnv("pointmass", mode="hold", latency="50ms", observe_switch=True)
    env.reset(seed=0)
    env.plant.qpos[0, :2] = env.plant.target[0] = 0.0
    x = 0.0
    for _ in range(3):
        observation, _, _, _, info = env.step(np.array([1]))
        assert info["period_s"] == pytest.approx(0.15)
        assert info["observation_switch"][0, 0] == pytest.approx(x, abs=1e-6)
        x += 0.3 * (1 - np.exp(-1))
        assert observation[0, 0] == pytest.approx(x, abs=1e-6)
    assert env.settings.label == "pointmass-latency_50ms-hold"


@pytest.mark.parametrize("task", TASK_NAMES)
def test_pictures_show_the_motion(task):
    env = TaskEnv(task, render_mode="rgb_array", latency=0.05)
    env.reset(seed=0)
    first = env.render()
    assert first.shape == (240, 320, 3)
    assert first.dtype == np.uint8
    assert (first == env.render()).all()
    for _ in range(15):
        env.step(4)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 50
    changed = (env.render() != first).any(axis=-1).mean()
    assert 0.001 < changed < 0.5


def test_no_picture_unless_asked_for():
    env = TaskEnv("cartpole")
    env.reset(seed=0)
    assert env.render() is None


def test_the_marker_stands_at_the_target():
    """The red disc is drawn where the target projects to: right of the cart when going right."""
    env = TaskEnv("cartpole", render_mode="rgb_array")
    env.reset(seed=0)
    env.step(4)
    image = env.render().astype(int)
    red = (image[..., 0] > 200) & (image[..., 1] < 90) & (image[..., 2] < 90)
    columns = np.flatnonzero(red.any(axis=0))
    target = env.vector.plant.target[0, 0]
    # 4.6 m away, 45 degrees high: 240 px show 2 * 4.6 * tan(22.5 deg) m
    pixels_per_m = 240 / (2 * 4.6 * np.tan(np.pi / 8))
    assert columns.mean() == pytest.approx(160 + target * pixels_per_m, abs=1.5)


@pytest.mark.slow
def test_memory_is_flat_over_a_million_steps():
    env = TaskVectorEnv(
        "pendulum", num_envs=256, latency=0.005, period=0.01, knowledge=ALL_KNOWLEDGE
    )
    env.reset(seed=0)
    actions = np.zeros(256, int)
    taken = []
    for _ in range(4):
        for _ in range(1000):
            env.step(actions)
        taken.append(resident_kb())
    assert taken[-1] - taken[0] < 5 * 1024  # over 768,000 steps


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="counts threads in /proc")
@pytest.mark.parametrize("task", ["cartpole", "grasp"])
def test_closing_frees_the_threads_of_the_physics(task):
    settings = settings_of(task)(task=task, **({"scenes": 8} if task == "grasp" else {}))
    before = threads()  # by name: others that are here may end meanwhile
    envs = settings.make(8, threads=4)
    envs.reset(seed=0)
    envs.step(envs.action_space.sample())
    own = threads() - before
    assert len(own) >= 3
    envs.close()
    assert not threads() & own
    envs.close()  # twice is once
    with pytest.raises(RuntimeError, match="these environments are closed: make them anew"):
        envs.reset()
    with pytest.raises(RuntimeError, match="closed"):
        envs.step(envs.action_space.sample())


def test_closing_one_environment_closes_its_physics():
    env = TaskEnv("pointmass")
    env.reset(seed=0)
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        env.reset()
