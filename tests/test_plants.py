"""Every plant obeys the one clock: physics walked tick by tick by the words of the rule.

The reference of `test_flight` says which decision each tick follows, from a plain list of
decisions; plain physics is then stepped one tick at a time. Latencies go beyond the period, arrive
out of order and get lost, wherever the plant's own face allows it or not.
"""

import itertools

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco import MujocoEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride import Concurrent, PerStep
from midstride.flight import Flight
from midstride.policies import as_policy
from midstride.realtime.bodies import GymBody
from midstride.realtime.clock import VirtualClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.runtime import Pace, Runtime
from midstride.realtime.senses import Senses
from midstride.realtime.thinker import DrawnThinker
from midstride.tasks.grasp import actions as columns
from midstride.tasks.grasp.objects import object_set
from midstride.tasks.grasp.scenes import make_scenes
from midstride.tasks.grasp.world import CONTROL_TICKS, World
from midstride.tasks.plant import TaskPlant
from midstride.tasks.settings import make_task
from midstride.timing import capture_interval
from tests.helpers import EVERY_TASK
from tests.test_flight import reference

decisions = st.lists(
    st.tuples(st.integers(0, 14), st.integers(1, 6), st.booleans()), min_size=2, max_size=6
)  # latency, period, lost


def timetable(steps, serial):
    """Captures (tick, latency or None, [(0, number of the decision)]), and when all is over."""
    now, captures = 0, []
    for k, (latency, period, lost) in enumerate(steps):
        captures.append((now, None if lost else latency, [(0, k)]))
        thinker = "serial" if serial else "pipelined"
        now += int(capture_interval(np.array([latency]), period, thinker)[0])
    return captures, now


def fly(flight, plant, steps, serial, action_of):
    """The same through the clock, all environments alike."""
    for k, (latency, period, lost) in enumerate(steps):
        n = flight.n
        ticks = capture_interval(np.full(n, latency), period, "serial" if serial else "pipelined")
        flight.capture(action_of(k), np.full(n, latency), lost=np.full(n, lost))
        flight.period(plant, ticks)


@pytest.mark.parametrize("name", EVERY_TASK)
@given(steps=decisions, serial=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=25)
def test_tasks(name, steps, serial, seed):
    rng = np.random.default_rng(seed)
    task = make_task(name)
    dims = len(task.controlled.names)
    moves = rng.uniform(-1, 1, (len(steps), dims))
    flight = Flight(2, (dims,), most_pending=20)
    plant = TaskPlant(task, flight, threads=1)
    plant.begin(np.arange(2), [np.random.default_rng(seed)] * 2)
    data = mujoco.MjData(task.model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = plant.qpos[1], plant.qvel[1], plant.target[1]
    fly(flight, plant, steps, serial, lambda k: np.tile(moves[k], (2, 1)))

    captures, end = timetable(steps, serial)
    tape, _ = reference(captures, end + 1)
    following = None
    for number in tape[:end]:
        following = switched(task, data, following, number, moves)
        mujoco.mj_step(task.model, data)
    switched(task, data, following, tape[end], moves)
    assert (plant.qpos[1] == data.qpos).all()
    assert (plant.qvel[1] == data.qvel).all()
    assert (plant.target[1] == data.ctrl).all()


def switched(task, data, following, number, moves):
    """A new decision: its target is relative to the place at this very tick."""
    if number != following:
        c = task.controlled
        target = data.qpos[c.qpos] + moves[number] * c.scale
        data.ctrl[:] = np.clip(target, c.low, c.high)
    return number


@pytest.mark.parametrize("name", EVERY_TASK)
@given(
    steps=st.lists(st.tuples(st.integers(0, 14), st.integers(1, 6)), min_size=2, max_size=6),
    seed=st.integers(0, 99),
)
@settings(max_examples=25)
def test_tasks_that_hold(name, steps, seed):
    """From capture to switch the target is where the capture was; then the action, executed."""
    rng = np.random.default_rng(seed)
    task = make_task(name)
    dims = len(task.controlled.names)
    moves = rng.uniform(-1, 1, (len(steps), dims))
    flight = Flight(2, (dims,), holds=True)
    plant = TaskPlant(task, flight, threads=1)
    plant.begin(np.arange(2), [np.random.default_rng(seed)] * 2)
    data = mujoco.MjData(task.model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = plant.qpos[1], plant.qvel[1], plant.target[1]
    nothing = np.zeros(dims)
    for move, (latency, execution) in zip(moves, steps, strict=True):
        flight.capture(np.tile(move, (2, 1)), np.full(2, latency))
        flight.period(plant, np.full(2, latency + execution))
        for tick in range(latency + execution):
            if tick == 0:
                switched(task, data, None, 0, [nothing])
            if tick == latency:
                switched(task, data, None, 0, [move])
            mujoco.mj_step(task.model, data)
        assert (plant.qpos[1] == data.qpos).all()
        assert (plant.qvel[1] == data.qvel).all()
        assert (plant.target[1] == data.ctrl).all()


@pytest.fixture(scope="module")
def scenes():
    return make_scenes(object_set("train"), 4, 1, 1, seed=0, threads=1)


@pytest.fixture(scope="module")
def trays():
    return make_scenes(object_set("train"), 4, 1, 1, seed=0, threads=1, belt=True)


def started(scenes, belt_seed=None):
    world = World(2, object_set("train"), 1, threads=1, belt=belt_seed is not None)
    if world.belt is not None:
        for i in range(2):
            rng = np.random.default_rng([belt_seed, i])
            world.belt.draw(i, rng, (0.1, 0.3), reverses=True)
    scenes.start(world, np.arange(2), np.array([0, 1]))
    return world


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_grasping(scenes, seed, serial):
    check_grasping(scenes, seed, serial, None)


@pytest.mark.parametrize("seed", range(4))
def test_grasping_from_a_belt(trays, seed):
    """It turns at its own ticks, wherever captures and switches are."""
    check_grasping(trays, seed, False, belt_seed=seed)


def check_grasping(scenes, seed, serial, belt_seed):
    """The controller has a turn at every capture, at every switch, and every 20 ms after each."""
    rng = np.random.default_rng(seed)
    steps = [
        (int(rng.integers(0, 40)), int(rng.integers(1, 30)), bool(rng.random() < 0.2))
        for _ in range(5)
    ]
    moves = np.zeros((len(steps), columns.SIZE))
    moves[:, :4] = rng.uniform(-1, 1, (len(steps), 4))
    moves[:, columns.CLOSE] = rng.random(len(steps)) < 0.5
    ours, twin = started(scenes, belt_seed), started(scenes, belt_seed)
    ours.flight = Flight(2, (columns.SIZE,), most_pending=50)
    for k, (latency, period, lost) in enumerate(steps):
        n, thinker = np.full(2, 1), "serial" if serial else "pipelined"
        ticks = capture_interval(latency * n, period, thinker)
        ours.decide(np.tile(moves[k], (2, 1)), latency * n, ticks, lost=np.full(2, lost))

    captures, end = timetable(steps, serial)
    tape, _ = reference(captures, end + 1)
    capture_ticks = {at for at, _, _ in captures}
    switch_ticks = {t for t in range(1, end + 1) if tape[t] != tape[t - 1]}
    switch_ticks |= {0} if tape[0] is not None else set()
    events = sorted(capture_ticks | switch_ticks | {end})
    since = 0
    for tick in range(end):
        if tick in switch_ticks:
            twin.switch(np.ones(2, bool), np.tile(moves[tape[tick]], (2, 1)))
        if tick in capture_ticks or tick in switch_ticks:
            since = tick
        if (tick - since) % CONTROL_TICKS == 0:
            ahead = min(e for e in events if e > tick) - tick
            twin.control(np.ones(2, bool), np.full(2, min(CONTROL_TICKS, ahead)))
        if twin.belt is not None:
            told = twin.belt.speed_m_s(np.full(2, tick))
            twin.ctrl[:, twin.places.belt] = told
        twin.physics(np.ones(2, bool), 1)
    if end in switch_ticks:
        twin.switch(np.ones(2, bool), np.tile(moves[tape[end]], (2, 1)))
    assert ours.reference == pytest.approx(twin.reference, abs=1e-12)
    assert ours.goal == pytest.approx(twin.goal, abs=1e-9)
    assert ours.qpos == pytest.approx(twin.qpos, abs=1e-9)


@pytest.mark.parametrize("env_id", ["InvertedPendulum-v5", "Reacher-v5", "HalfCheetah-v5"])
@given(data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_wrapped_environments(env_id, data, seed):
    """Its own face allows latencies up to the period."""
    bare = gymnasium.make(env_id).unwrapped
    assert isinstance(bare, MujocoEnv)
    tick_s, period = bare.model.opt.timestep, bare.frame_skip
    latencies = data.draw(st.lists(st.integers(0, period), min_size=1, max_size=3, unique=True))
    env = Concurrent(gymnasium.make(env_id), latency=PerStep(tuple(t * tick_s for t in latencies)))
    env.reset(seed=seed)
    physics = mujoco.MjData(bare.model)
    inner = env.unwrapped
    physics.qpos[:], physics.qvel[:] = inner.data.qpos, inner.data.qvel
    env.action_space.seed(seed)
    captures, moves = [], []
    for k in range(5):
        action = env.action_space.sample()
        *_, terminated, _, info = env.step(action)
        captures.append((k * period, round(info["latency_s"] / tick_s), [(0, k)]))
        moves.append(action)
        if terminated:
            break
    end = len(moves) * period
    for number in reference(captures, end)[0]:
        physics.ctrl[:] = 0 if number is None else moves[number]
        mujoco.mj_step(bare.model, physics)
    assert (inner.data.qpos == physics.qpos).all()
    assert (inner.data.qvel == physics.qvel).all()


class Diary(gymnasium.Env):
    """Writes down which action it followed at every tick."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(100)

    def reset(self, *, seed=None, options=None):
        self.ticks = []
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.ticks.append(int(action))
        return np.zeros(1, np.float32), 0.0, False, False, {}


@given(
    steps=st.lists(st.tuples(st.integers(0, 14), st.booleans()), min_size=2, max_size=8),
    period=st.integers(1, 6),
    serial=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_robot_on_a_clock(steps, period, serial):
    """Ticks are its own, latencies beyond the period, arriving out of order, lost."""
    tick_s, env, clock = 0.01, Diary(), VirtualClock(7.0)
    robot = ClockedRobot(GymBody(env, tick_s, hold=99), clock)
    robot.connect()
    number = itertools.count()
    policy = as_policy(lambda row: next(number))
    draws = itertools.chain([(latency * tick_s, lost) for latency, lost in steps], [(0.0, True)])
    thinker = DrawnThinker(policy, clock, draws, is_serial=serial)
    runtime = Runtime(robot, thinker, Senses(robot.declared), Pace(period_s=period * tick_s), clock)
    for _ in itertools.islice(runtime.cycles(), len(steps) + 1):
        pass
    captures, end = timetable([(latency, period, lost) for latency, lost in steps], serial)
    followed = [99 if k is None else k for k in reference(captures, end)[0]]
    assert env.ticks == followed
