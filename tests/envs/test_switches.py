"""What is observed at switches and within periods, against physics by hand and a plain list."""

from functools import cache

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride import Concurrent, Fixed, Lossy, PerStep, Trace
from midstride.envs.dm_control import DMControlEnv
from tests.envs.reference import Reference
from tests.envs.test_any_environment import MODELS, STEP_S, Tape
from tests.envs.test_concurrent import SERVO_XML, Servos

MUJOCO = ("InvertedDoublePendulum-v5", "Hopper-v5", "HalfCheetah-v5", "Ant-v5")


@cache
def made(name, copy):
    """Two of each: one to wrap, one to move by hand."""
    return gymnasium.make(name)


def latencies(tick_s, most):
    """Fixed, varying and lossy ones, of up to `most` ticks."""
    ticks = st.lists(st.integers(0, most), min_size=1, max_size=3)
    models = ticks.map(lambda ks: PerStep(tuple(k * tick_s for k in ks)))
    return st.one_of(models, models.map(lambda model: Lossy(model, 0.3)))


class ByHand:
    """MuJoCo, tick by tick: the controls of a plain list of decisions."""

    def __init__(self, env, seed):
        self.inner, self.clock, self.tick = env.unwrapped, Reference(), 0
        env.reset(seed=seed)
        self.control = np.zeros(self.inner.model.nu)

    def observe(self):
        mujoco.mj_rnePostConstraint(self.inner.model, self.inner.data)  # as its own step does
        return self.inner._get_obs()

    def follow(self):
        """Let what has arrived come into force; the switch, if there was one."""
        switches = arrived(self.clock, self.tick, self.observe())
        if switches:
            self.control = self.clock.in_force.action
        return switches

    def live(self, action, latency, lost, ticks):
        """From a capture to the next: all switches on the way."""
        self.clock.decide(self.tick, action, latency, lost)
        switches = self.follow()
        for _ in range(ticks):
            self.inner.data.ctrl[:] = self.control
            mujoco.mj_step(self.inner.model, self.inner.data)
            self.tick += 1
            switches += self.follow()
        return switches


def assert_same(ours, theirs):
    assert [number for number, _ in ours] == [number for number, _ in theirs]
    for (_, seen), (_, right) in zip(ours, theirs, strict=True):
        assert np.array_equal(seen, right)


@given(data=st.data(), name=st.sampled_from(MUJOCO), seed=st.integers(0, 10**6))
@settings(max_examples=60)
def test_switches_of_mujoco_are_those_of_physics_by_hand(data, name, seed):
    """Latencies up to three periods, some lost, some overtaken: which, when, and what is seen."""
    bare = made(name, 0)
    tick_s, period = bare.unwrapped.model.opt.timestep, bare.unwrapped.frame_skip
    model = data.draw(latencies(tick_s, 3 * period))
    env = Concurrent(bare, model, observe_switch=True)
    hand = ByHand(made(name, 1), seed)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(12):
        action = env.action_space.sample()
        observation, _, terminated, _, info = env.step(action)
        right = hand.live(action, round(info["latency_s"] / tick_s), info["lost"], period)
        assert_same(info["switches"], right)
        assert np.array_equal(observation, hand.observe())
        if terminated:
            break


def arrived(clock, tick, observation):
    """The switch at a tick, if there is one, and what is observed there."""
    before = clock.in_force
    return [] if clock.at(tick) is before else [(clock.in_force.number, observation)]


@given(
    model=MODELS,
    period=st.integers(1, 4),
    thinker=st.sampled_from(["pipelined", "serial"]),
    ends=st.integers(1, 40),
    seed=st.integers(0, 99),
)
@settings(max_examples=100)
def test_switches_of_whole_steps_are_those_of_a_plain_list(model, period, thinker, ends, seed):
    """Where an episode ends inside of a period, switches after its end are none."""
    env = Concurrent(
        Tape(ends), model, period=period * STEP_S, step_s=STEP_S, thinker=thinker,
        observe_switch=True,
    )  # fmt: skip
    bare, clock = Tape(ends), Reference()
    env.reset(seed=seed)
    observation, _ = bare.reset(seed=seed)
    env.action_space.seed(seed)
    over = False
    while not over and bare.tick < 30:
        action = env.action_space.sample()
        _, _, over, _, info = env.step(action)
        clock.decide(bare.tick, action, round(info["latency_s"] / STEP_S), info["lost"])
        right = arrived(clock, bare.tick, observation)
        for _ in range(round(info["period_s"] / STEP_S)):
            in_force = clock.in_force
            observation, *_ = bare.step(np.zeros(2) if in_force is None else in_force.action)
            right += arrived(clock, bare.tick, observation)
        assert_same(info["switches"], right)


def trajectory(env, steps=12, seed=5):
    seen = [env.reset(seed=seed)[0]]
    env.action_space.seed(seed)
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.append(np.append(observation, reward))
        if terminated or truncated:
            break
    return np.concatenate(seen)


@pytest.mark.parametrize("kind", ["Ant-v5", "Hopper-v5", "dmc", "noisy"])
@pytest.mark.parametrize("periods", [0, 0.5, 2.5])
def test_looking_changes_nothing(kind, periods, tmp_path):
    """The same trajectory, bit for bit, with and without."""
    path = tmp_path / "servos.xml"
    path.write_text(SERVO_XML.replace('timestep="0.01"', 'timestep="0.005"'))

    def make(**options):
        if kind == "dmc":
            pytest.importorskip("dm_control")
            bare = DMControlEnv("cartpole", "swingup")  # RK4
        else:
            bare = Servos(str(path), 0.1) if kind == "noisy" else gymnasium.make(kind)
        inner = bare.unwrapped
        ticks = round(periods * inner.frame_skip)
        return Concurrent(bare, ticks * inner.model.opt.timestep, **options)

    blind = trajectory(make())
    assert np.array_equal(trajectory(make(observe_switch=True)), blind)
    if periods == 0:
        env = make()
        env.look_within(range(1, env.timing.shortest_period_ticks))
        assert np.array_equal(trajectory(env), blind)


@pytest.mark.parametrize("name", MUJOCO)
def test_within_is_what_physics_by_hand_shows(name):
    bare = made(name, 0)
    period = bare.unwrapped.frame_skip
    env, hand = Concurrent(bare), ByHand(made(name, 1), 3)
    ticks = sorted({1, period // 2, period - 1} - {0})
    env.look_within(ticks)
    env.reset(seed=3)
    env.action_space.seed(3)
    for _ in range(4):
        action = env.action_space.sample()
        info = env.step(action)[4]
        assert sorted(info["within"]) == ticks
        right = {}
        for tick in range(1, period + 1):
            hand.inner.data.ctrl[:] = action
            mujoco.mj_step(hand.inner.model, hand.inner.data)
            right[tick] = hand.observe()
        for tick, seen in info["within"].items():
            assert np.array_equal(seen, right[tick])


def test_within_whole_steps():
    """A period of four steps, of which the last ends early."""
    env = Concurrent(Tape(ends=6), step_s=STEP_S, period=4 * STEP_S)
    env.look_within([3, 1])
    env.reset(seed=0)
    info = env.step(np.zeros(2))[4]
    assert {tick: seen[0] for tick, seen in info["within"].items()} == {1: 1, 3: 3}
    info = env.step(np.zeros(2))[4]
    assert {tick: seen[0] for tick, seen in info["within"].items()} == {1: 5}
    assert "switches" not in info  # nobody asked for them


def test_the_numbers_of_decisions_begin_again_with_an_episode():
    env = Concurrent(Tape(), 2 * STEP_S, step_s=STEP_S, observe_switch=True)
    for _ in range(2):
        env.reset(seed=0)
        found = [env.step(np.zeros(2))[4]["switches"] for _ in range(4)]
        assert [[number for number, _ in switches] for switches in found] == [[], [0], [1], [2]]
        assert [seen[0] for switches in found for _, seen in switches] == [2, 3, 4]


def test_overtaken_and_lost_decisions_have_no_switch():
    """Latencies of 3 and 1 steps by turns: the second comes first, and the first is stale."""
    model = Trace((3 * STEP_S, STEP_S), start="first")
    env = Concurrent(Tape(), model, step_s=STEP_S, observe_switch=True)
    env.reset(seed=0)
    infos = [env.step(np.zeros(2))[4] for _ in range(8)]
    numbers = [number for info in infos for number, _ in info["switches"]]
    assert numbers == [1, 3, 5, 7]
    assert sum(info["stale"] for info in infos) == 4
    env = Concurrent(Tape(), Lossy(Fixed(0.0), 1.0), step_s=STEP_S, observe_switch=True)
    env.reset(seed=0)
    assert [env.step(np.zeros(2))[4]["switches"] for _ in range(3)] == [(), (), ()]


class Reuses(gymnasium.Env):
    """Writes what it observes into one array, again and again."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = np.zeros(1)
        return self.seen, {}

    def step(self, action):
        self.seen += 1
        return self.seen, 0.0, False, False, {}


def test_what_was_seen_stays_as_it_was():
    env = Concurrent(Reuses(), STEP_S, step_s=STEP_S, period=3 * STEP_S, observe_switch=True)
    env.reset()
    _, _, _, _, info = env.step(np.zeros(1))
    assert info["switches"][0][1] == 1
    assert info["observation_switch"] == 1
    env = Concurrent(Reuses(), step_s=STEP_S, period=3 * STEP_S)
    env.look_within([1, 2])
    env.reset()
    assert env.step(np.zeros(1))[4]["within"] == {1: 1, 2: 2}


def test_what_cannot_be_looked_at_is_said():
    env = Concurrent(made("HalfCheetah-v5", 0))
    with pytest.raises(ValueError, match=r"within a period of 5 ticks there is no \(5,\)"):
        env.look_within([5])
    with pytest.raises(ValueError, match="look_within is for latency 0"):
        Concurrent(made("HalfCheetah-v5", 0), 0.01).look_within([1])
    with pytest.raises(ValueError, match="look at the same steps"):
        Concurrent(made("HalfCheetah-v5", 0), observe_switch=True).look_within([1])
    with pytest.raises(ValueError, match="a period of one step of the environment's own"):
        Concurrent(made("HalfCheetah-v5", 0), period=0.1).look_within([1])
    changed = gymnasium.wrappers.TransformObservation(made("HalfCheetah-v5", 0), np.sin, None)
    with pytest.raises(ValueError, match="no wrapper inside Concurrent that changes"):
        Concurrent(changed).look_within([1])


def test_the_action_that_holds():
    """What an episode does before its first decision, as an action where one does the same."""
    assert Concurrent(made("Hopper-v5", 0)).hold_action == pytest.approx([0, 0, 0])
    assert Concurrent(made("Hopper-v5", 0), hold=[1.0, 0, 0]).hold_action is None
    assert Concurrent(Tape(), step_s=STEP_S, hold=[0.5, 0.5]).hold_action.tolist() == [0.5, 0.5]
    assert Concurrent(Tape(discrete=True), step_s=STEP_S).hold_action == 2
    pytest.importorskip("dm_control")  # position actuators stay where they are
    assert Concurrent(DMControlEnv("fish", "swim")).hold_action is None
