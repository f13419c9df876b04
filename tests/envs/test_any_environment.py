"""Environments that are known by their steps alone, tick by tick, against themselves."""

import copy
import math
import pickle

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import midstride
from midstride import Concurrent, Fixed, Jittered, Lossy, PerEpisode, PerStep, Sampled, Trace
from midstride.flight import NEVER
from midstride.flight_of_one import FlightOfOne
from tests.envs.reference import Reference
from tests.test_flight import TapeOfOne, reference

STEP_S = 0.01


class Tape(gymnasium.Env):
    """Observes the tick and a state that remembers every action; ends when it is told to."""

    def __init__(self, ends=10**6, columns=2, discrete=False):
        self.ends = ends
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = (
            spaces.Discrete(5, start=2)
            if discrete
            else spaces.Box(-np.arange(1.0, columns + 1), 2.0, dtype=np.float64)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.tick, self.state, self.followed = 0, self.np_random.uniform(), []
        return np.array([self.tick, self.state]), {"tick": 0}

    def step(self, action):
        self.followed.append(copy.deepcopy(action))
        self.tick += 1
        self.state = math.sin(3 * self.state + float(np.sum(action)) + self.tick)
        observation = np.array([self.tick, self.state])
        return observation, self.state, self.tick >= self.ends, False, {"tick": self.tick}


LATENCIES = st.one_of(
    st.integers(0, 9).map(lambda k: Fixed(k * STEP_S)),
    st.lists(st.integers(0, 9), min_size=1, max_size=4).map(
        lambda ks: PerStep(tuple(k * STEP_S for k in ks))
    ),
    st.lists(st.integers(0, 9), min_size=1, max_size=4).map(
        lambda ks: PerEpisode(tuple(k * STEP_S for k in ks))
    ),
    st.lists(st.floats(0, 0.09), min_size=1, max_size=5).map(lambda s: Trace(tuple(s), "up")),
    st.just(Jittered(0.04, 0.04)),
    st.just(Sampled(lambda rng, n: rng.exponential(0.03, n), 0.0, 0.09)),
)
MODELS = st.one_of(LATENCIES, st.tuples(LATENCIES, st.floats(0, 1)).map(lambda p: Lossy(*p)))


def action_code(space, action):
    if isinstance(space, spaces.Discrete):
        return np.eye(space.n)[int(action) - int(space.start)]
    return (action - (space.low + space.high) / 2) / ((space.high - space.low) / 2)


def expected_row(clock, env, own, latency_s, action_space):
    """Knowledge from the reference's list alone."""
    size = len(env.layout.action)
    code = lambda a: np.zeros(size) if a is None else action_code(action_space, a)  # noqa: E731
    in_force = clock.in_force
    pending = [code(a) for a in clock.pending(env.layout.pending_slots)]
    high_s = env.timing.latency_high_s
    measured = 0.0 if in_force is None or not high_s else in_force.latency * STEP_S / high_s
    parts = [own, code(None if in_force is None else in_force.action), *pending, [measured]]
    return np.concatenate(parts)


@given(
    model=MODELS,
    period=st.integers(1, 5),
    thinker=st.sampled_from(["pipelined", "serial"]),
    discrete=st.booleans(),
    ends=st.integers(1, 60),
    seed=st.integers(0, 99),
)
@settings(max_examples=150)
def test_every_step_follows_what_the_rule_says(model, period, thinker, discrete, ends, seed):
    """Actions, observations, rewards, knowledge and info, bit for bit, to the episode's end."""
    env = Concurrent(
        Tape(ends, discrete=discrete),
        latency=model,
        period=period * STEP_S,
        step_s=STEP_S,
        thinker=thinker,
        knowledge=("previous_action", "pending_actions", "selection_time"),
    )
    bare, clock = Tape(ends, discrete=discrete), Reference()
    first, _ = env.reset(seed=seed)
    own, _ = bare.reset(seed=seed)
    space = bare.action_space
    assert np.array_equal(first, np.concatenate([own, np.zeros(len(first) - 2)]))
    space.seed(seed)
    hold = 2 if discrete else np.zeros(2)
    tick, over = 0, False
    while not over and tick < 40:
        action = space.sample()
        observation, reward, over, _, info = env.step(action)
        latency = round(info["latency_s"] / STEP_S)
        stale, began, rewards = clock.stale, tick, [0.0, 0.0]
        clock.decide(tick, action, latency, info["lost"])
        interval = period
        if thinker == "serial":
            interval = period * max(1, math.ceil(latency / period))
        while tick < began + interval and not bare.tick >= ends:
            followed = clock.at(tick)
            newest = followed is not None and followed.number == clock.made - 1
            own, paid, _, _, own_info = bare.step(hold if followed is None else followed.action)
            rewards[newest] += paid
            tick += 1
        assert over == (bare.tick >= ends)
        assert np.array_equal(observation[:2], own)
        assert info["tick"] == own_info["tick"]
        assert info["period_s"] == (tick - began) * STEP_S
        assert reward == pytest.approx(sum(rewards), abs=1e-12)
        assert info["reward_before_switch"] == pytest.approx(rewards[0], abs=1e-12)
        assert info["reward_after_switch"] == pytest.approx(rewards[1], abs=1e-12)
        clock.at(tick)
        expected = expected_row(clock, env, own, latency, space)
        assert observation == pytest.approx(expected, abs=1e-12)
        assert observation in env.observation_space
        pending = clock.pending(env.layout.pending_slots)
        assert info["pending"] == sum(a is not None for a in pending)
        assert info["stale"] == clock.stale - stale
    assert np.array_equal(env.unwrapped.followed, bare.followed)


@given(data=st.data(), most=st.integers(1, 4))
@settings(max_examples=150)
def test_a_decision_and_its_period_in_one_call(data, most):
    """`decide` is `capture` and `period`, whatever came before it and however the plant goes on."""
    flight, plant = FlightOfOne(most_pending=20), TapeOfOne(most)
    captures, now = [], 0
    for k in range(data.draw(st.integers(1, 8))):
        latency, ticks, lost, chunk = data.draw(
            st.tuples(st.integers(0, 9), st.integers(1, 5), st.booleans(), st.booleans())
        )
        actions = [(0, k), (2, k + 0.5)] if chunk else [(0, k)]
        captures.append((now, None if lost else latency, actions))
        if chunk:
            flight.capture_chunk([a for _, a in actions], [s for s, _ in actions], latency, lost)
            flight.period(plant, ticks)
        else:
            flight.decide(plant, k, latency, ticks, lost)
        now += ticks
    tape, number = reference(captures, now)
    assert plant.ticks == tape
    assert flight.in_force == number
    assert flight._event > flight.now or flight._event == NEVER


@pytest.mark.parametrize("thinker", ["pipelined", "serial"])
@pytest.mark.parametrize("env_id", ["InvertedPendulum-v5", "Reacher-v5", "HalfCheetah-v5"])
@given(data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=12)
def test_physics_follows_what_the_rule_says(env_id, thinker, data, seed):
    """`mj_step` one tick at a time, with the decision of the list; latencies of many periods."""
    bare = gymnasium.make(env_id).unwrapped
    tick_s, own = bare.model.opt.timestep, bare.frame_skip
    ticks = data.draw(st.lists(st.integers(0, 3 * own), min_size=1, max_size=4))
    steps = data.draw(st.integers(1, 3))
    share = data.draw(st.sampled_from([0.0, 0.4]))
    env = Concurrent(
        gymnasium.make(env_id),
        latency=Lossy(PerStep(tuple(k * tick_s for k in ticks)), share),
        knowledge=("previous_action", "pending_actions", "selection_time"),
        period=steps * own * tick_s,
        thinker=thinker,
    )
    env.reset(seed=seed)
    inner, physics, clock = env.unwrapped, mujoco.MjData(bare.model), Reference()
    physics.qpos[:], physics.qvel[:] = inner.data.qpos, inner.data.qvel
    env.action_space.seed(seed)
    tick = 0
    for _ in range(6):
        action = env.action_space.sample()
        observation, reward, terminated, _, info = env.step(action)
        latency = round(info["latency_s"] / tick_s)
        clock.decide(tick, action, latency, info["lost"])
        interval = steps * own
        if thinker == "serial":
            interval *= max(1, math.ceil(latency / interval))
        passed = round(info["period_s"] / tick_s)
        assert passed == interval or (terminated and passed < interval and passed % own == 0)
        for _ in range(passed):
            followed = clock.at(tick)
            physics.ctrl[:] = 0 if followed is None else followed.action
            mujoco.mj_step(bare.model, physics)
            tick += 1
        assert np.array_equal(inner.data.qpos, physics.qpos)
        assert np.array_equal(inner.data.qvel, physics.qvel)
        split = info["reward_before_switch"], info["reward_after_switch"]
        assert sum(split) == pytest.approx(reward)
        if terminated:
            break
        clock.at(tick)
        expected = knowledge_of(clock, env, tick_s)
        assert observation[env.layout.slices["base"].stop :] == pytest.approx(expected, abs=1e-12)


def knowledge_of(clock, env, tick_s):
    space, size = env.action_space, len(env.layout.action)
    high_s = env.timing.latency_high_s

    def code(action):
        return np.zeros(size) if action is None else action_code(space, action.astype(float))

    in_force = clock.in_force
    measured = 0.0 if in_force is None or not high_s else in_force.latency * tick_s / high_s
    previous = code(None if in_force is None else in_force.action)
    pending = [code(a) for a in clock.pending(env.layout.pending_slots)]
    return np.concatenate([previous, *pending, [measured]])


# --- Latency 0 is the bare environment

BARE = {
    "CartPole-v1": 0.02,
    "Acrobot-v1": 0.2,
    "MountainCarContinuous-v0": 0.1,
    "Pendulum-v1": None,  # says its dt itself
    "FrozenLake-v1": 1.0,
    "Blackjack-v1": 1.0,  # a Tuple of observations
    "Taxi-v4": 1.0,
    "CliffWalking-v1": 1.0,
    "HalfCheetah-v5": 0.05,  # whole steps of a MuJoCo environment
}


@pytest.mark.parametrize("env_id", BARE)
@given(seed=st.integers(0, 2**20))
@settings(max_examples=5)
def test_zero_latency_is_the_bare_environment(env_id, seed):
    def make():
        env = gymnasium.make(env_id, max_episode_steps=37)
        return gymnasium.wrappers.RecordEpisodeStatistics(env)

    bare, wrapped = make(), Concurrent(make(), step_s=BARE[env_id])
    assert wrapped.observation_space == bare.observation_space
    assert np.array_equal(wrapped.reset(seed=seed)[0], bare.reset(seed=seed)[0])
    bare.action_space.seed(seed)
    for _ in range(80):
        action = bare.action_space.sample()
        ours, theirs = wrapped.step(action), bare.step(action)
        assert np.array_equal(ours[0], theirs[0])
        assert type(ours[0]) is type(theirs[0])
        assert ours[1:4] == theirs[1:4]
        assert type(ours[1]) is type(theirs[1])
        assert set(theirs[4]) <= set(ours[4])
        if ours[2] or ours[3]:
            assert np.array_equal(wrapped.reset()[0], bare.reset()[0])


def test_a_period_of_several_steps_repeats_the_action():
    bare, env = Tape(), Concurrent(Tape(), period=0.03, step_s=0.01)
    bare.reset(seed=0)
    env.reset(seed=0)
    for action in np.linspace([-1, 0], [1, 1], 5):
        theirs = [bare.step(action) for _ in range(3)]
        observation, reward, *_ = env.step(action)
        assert np.array_equal(observation, theirs[-1][0])
        assert reward == theirs[0][1] + theirs[1][1] + theirs[2][1]


def test_spaces_of_every_kind_pass():
    """Dictionaries and tuples go through as they are, held and in flight too."""

    class Odd(gymnasium.Env):
        observation_space = spaces.Dict(
            {"image": spaces.Box(0, 255, (4, 4, 3), np.uint8), "where": spaces.Discrete(3)}
        )
        action_space = spaces.Dict(
            {"grip": spaces.MultiBinary(2), "go": spaces.Tuple([spaces.MultiDiscrete([3, 4])] * 2)}
        )

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.followed = []
            return self.observation_space.sample(), {}

        def step(self, action):
            self.followed.append(action)
            return self.observation_space.sample(), 1, False, False, {}

    env = Concurrent(Odd(), latency=0.02, step_s=0.01)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(4)]
    for action in actions:
        observation, *_ = env.step(action)
        assert observation in env.observation_space
    for held in env.unwrapped.followed[:2]:
        assert held in env.action_space
        assert not held["grip"].any()
        assert not np.any(held["go"])
    for followed, action in zip(env.unwrapped.followed[2:], actions, strict=False):
        assert followed["grip"].tolist() == action["grip"].tolist()
    with pytest.raises(ValueError, match="observes a flat Box"):
        Concurrent(Odd(), step_s=0.01, knowledge=("previous_action",))


def test_hold_is_followed_until_the_first_decision_arrives():
    for hold, expected in ((None, [0.0, 0.0]), ([1.0, -2.0], [1.0, -2.0])):
        env = Concurrent(Tape(), latency=0.03, step_s=0.01, hold=hold)
        for _ in range(2):  # after every reset
            env.reset(seed=0)
            for _ in range(4):
                env.step(np.array([0.5, 0.5]))
            assert np.array_equal(env.unwrapped.followed, [expected] * 3 + [[0.5, 0.5]])
    discrete = Concurrent(Tape(discrete=True), latency=0.01, step_s=0.01, hold=4)
    discrete.reset(seed=0)
    discrete.step(3)
    assert discrete.unwrapped.followed == [4]


def test_motors_can_be_held_elsewhere_than_at_zero():
    env = Concurrent(gymnasium.make("InvertedPendulum-v5"), latency=0.04, hold=[2.0])
    twin = gymnasium.make("InvertedPendulum-v5")
    assert np.array_equal(env.reset(seed=0)[0], twin.reset(seed=0)[0])
    assert np.array_equal(env.step(np.array([-3.0]))[0], twin.step(np.array([2.0]))[0])


@pytest.mark.parametrize("latency", [0.0, 0.01, 0.02, 0.03])
def test_the_switch_is_observed_where_it_happens(latency):
    env = Concurrent(
        Tape(), latency, ("previous_action",), step_s=0.01, period=0.03, observe_switch=True
    )
    env.reset(seed=0)
    for k in range(4):
        seen = env.step(np.array([0.1 * k, 0.0]))[4]["observation_switch"]
        assert seen[0] == 3 * k + round(latency / 0.01)
        assert np.array_equal(seen[2:], action_code(env.action_space, np.array([0.1 * k, 0.0])))


def test_an_end_stands_for_a_late_switch():
    env = Concurrent(Tape(ends=2), 0.03, step_s=0.01, period=0.03, observe_switch=True)
    env.reset(seed=0)
    observation, _, terminated, _, info = env.step(np.zeros(2))
    assert terminated
    assert np.array_equal(info["observation_switch"], observation)
    assert info["period_s"] == pytest.approx(0.02)


def test_copies_and_reused_actions():
    env = Concurrent(Tape(), 0.02, step_s=0.01, period=0.02, thinker="serial", hold=[1.0, 1.0])
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert twin.timing == env.timing
        env.reset(seed=1)
        twin.reset(seed=1)
        reused = np.zeros(2)
        for action in np.linspace([-1, 0], [1, 1], 5):
            reused[:] = action
            assert np.array_equal(env.step(reused)[0], twin.step(action)[0])


@pytest.mark.filterwarnings("ignore")
def test_gymnasium_contract():
    env = gymnasium.make("CartPole-v1")
    check_env(Concurrent(env, latency=0.04, step_s=0.02), skip_render_check=True)


# --- What cannot be


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["steps", "physics", "dm"])
def test_actions_that_are_not_finite_are_refused(kind, bad):
    if kind == "dm":
        pytest.importorskip("dm_control")
        env = midstride.from_dm_control("reacher", "easy")
    else:
        env = Concurrent(Tape(), step_s=0.01)
    if kind == "physics":
        env = Concurrent(gymnasium.make("Reacher-v5"), latency=0.01)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="an action must be finite numbers"):
        env.step(np.array([0.0, bad]))
    env.reset(seed=0)
    env.step(np.array([0.0, 1e100]))  # large, and a number


def test_unstable_physics_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log where it is
    env = Concurrent(gymnasium.make("HalfCheetah-v5"), latency=0.02)
    env.reset(seed=0)
    env.unwrapped.data.qvel[0] = 1e12
    with pytest.raises(RuntimeError, match="became unstable: MuJoCo warns of impossible"):
        env.step(np.zeros(6))
    env.reset(seed=0)  # it can go on
    env.step(np.zeros(6))


def anything(env):
    return Concurrent(env)


def cartpole(**options):
    return Concurrent(gymnasium.make("CartPole-v1"), **options)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: cartpole(), r"does not say how long a step lasts \(it is drawn 50 times.*step_s"),
        (lambda: cartpole(step_s=0.02, latency=0.03), "valid times are 20 ms and 40 ms; the ticks"),
        (lambda: cartpole(step_s=0.02, period=0.05), "of 20 ms: valid near it are 40 ms and 60 ms"),
        (lambda: cartpole(step_s=0.02, period=0.01), "of 20 ms: valid near it is 20 ms"),
        (lambda: cartpole(step_s=0.02, latency=25), "as long as an episode.*did you mean 25ms"),
        (lambda: cartpole(step_s=0.02, tick=0.01), "tick is for MuJoCo environments"),
        (lambda: cartpole(step_s=0.0), "longer than 0 s"),
        (lambda: cartpole(step_s="20ms"), "must be a number of seconds"),
        (lambda: cartpole(step_s=0.02, thinker="twice"), "thinker must be pipelined or serial"),
        (lambda: cartpole(step_s=0.02, hold=2), "hold must be an action of Discrete"),
        (lambda: cartpole(step_s=0.02, hold="left"), "hold must be an action of Discrete"),
        (lambda: Concurrent(gymnasium.make("Reacher-v5"), hold=[0.0]), "each of the 2 actuators"),
        (lambda: Concurrent(gymnasium.make("Reacher-v5"), period=0.05), "own steps of 20 ms"),
        (lambda: cartpole(step_s=0.02, knowledge=("vector_to_go",)), "needs position-controlled"),
        (lambda: anything(gymnasium.make_vec("CartPole-v1", 2)), "wrap them in ConcurrentVector"),
        (lambda: anything("CartPole-v1"), "wraps a Gymnasium environment, got 'CartPole-v1'"),
    ],
)
def test_bad_input(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()
