"""On a virtual clock the runtime and the simulation live the same episode, bit for bit."""

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride import Concurrent, Fixed, Lossy, PerStep
from midstride.envs.concurrent import steps_of
from midstride.latency_text import latency_text
from midstride.policies import as_policy
from midstride.realtime.bodies import GymBody, TaskBody
from midstride.realtime.clock import VirtualClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.runtime import Pace, Runtime
from midstride.realtime.senses import Senses
from midstride.realtime.thinker import DrawnThinker
from midstride.tasks.single import TaskEnv

STEP_S = 0.02
KNOWLEDGE = ("previous_action", "pending_actions", "selection_time")


class Odometer(gymnasium.Env):
    """Adds up what it is told, in a way that keeps the order; writes down every action."""

    def __init__(self, discrete):
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-2, 2, (2,), np.float32)
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.tape = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1, 1, 3)
        self.tape = []
        return self.state.copy(), {}

    def step(self, action):
        self.tape.append(np.array(action, copy=True))
        told = np.resize(np.asarray(action, float), 3)
        self.state = 0.9 * self.state[[2, 0, 1]] + 0.1 * told + self.np_random.normal(0, 0.01, 3)
        return self.state.copy(), float(self.state[0]), False, False, {}


def decide(space):
    """A policy that depends on every column of what it sees."""

    def act(row):
        numbers = np.asarray(row, float)
        weights = np.sin(1.0 + np.arange(numbers.size))
        if isinstance(space, spaces.Discrete):
            return int(np.floor(1000 * abs(numbers @ weights)) % space.n)
        size = space.shape[0]
        shifted = [np.tanh(numbers @ np.roll(weights, k)) for k in range(size)]
        return (np.array(shifted) * space.high).astype(np.float32)

    return as_policy(act)


def drawn(timing, rng):
    """What the simulation draws, in seconds."""
    return ((ticks * timing.tick_s, lost) for ticks, _, lost in steps_of(timing, rng))


def lived(robot, policy, timing, senses, pace, clock, draws, cycles):
    """Rows and actions of a run on the clock."""
    robot.connect()
    actions = []

    def remembered(row):
        actions.append(policy(row))
        return actions[-1]

    thinker = DrawnThinker(
        as_policy(remembered), clock, draws, is_serial=timing.thinker == "serial"
    )
    runtime = Runtime(robot, thinker, senses, pace, clock)
    rows = [cycle.row for cycle in itertools.islice(runtime.cycles(), cycles)]
    return rows, actions, runtime


latencies = st.lists(st.integers(0, 13), min_size=1, max_size=4, unique=True)


@settings(max_examples=80, deadline=None)
@given(
    ticks=latencies,
    period=st.integers(1, 5),
    share=st.sampled_from([0.0, 0.3, 0.8]),
    thinker=st.sampled_from(["pipelined", "serial"]),
    discrete=st.booleans(),
    stack=st.integers(0, 2),
    knows=st.booleans(),
    start_s=st.sampled_from([0.0, 12345.678]),
    seed=st.integers(0, 999),
)
def test_the_runtime_lives_what_concurrent_simulates(
    ticks, period, share, thinker, discrete, stack, knows, start_s, seed
):
    model = (
        PerStep(tuple(STEP_S * t for t in ticks)) if len(ticks) > 1 else Fixed(STEP_S * ticks[0])
    )
    if share:
        model = Lossy(model, share)
    asked = {
        "knowledge": KNOWLEDGE if knows else (),
        "stack_observations": stack,
        "stack_actions": stack,
    }
    bare = Odometer(discrete)
    env = Concurrent(bare, model, step_s=STEP_S, period=period * STEP_S, thinker=thinker, **asked)
    policy = decide(bare.action_space)
    row, _ = env.reset(seed=seed)
    rows, actions, infos = [row], [], []
    for _ in range(12):
        actions.append(policy(row))
        row, _, _, _, info = env.step(actions[-1])
        rows.append(row)
        infos.append(info)

    clock, twin = VirtualClock(start_s), Odometer(discrete)
    body = GymBody(twin, STEP_S)
    robot = ClockedRobot(body, clock, seed=seed)
    timing = env.timing
    senses = Senses(
        robot.declared,
        **asked,
        pending_slots=timing.pending_slots,
        selection_scale_s=timing.selection_scale_s,
    )
    draws = drawn(timing, np.random.default_rng([seed, 1]))
    pace = Pace(period_s=period * STEP_S)
    seen, decided, runtime = lived(robot, policy, timing, senses, pace, clock, draws, 13)

    assert [r.tobytes() for r in seen] == [r.tobytes() for r in rows]
    assert [np.asarray(a).tobytes() for a in decided[:12]] == [
        np.asarray(a).tobytes() for a in actions
    ]
    assert [a.tobytes() for a in twin.tape] == [a.tobytes() for a in bare.tape]
    assert senses.observation_space == env.observation_space
    assert runtime.flight.stale == sum(info["stale"] for info in infos)


@settings(max_examples=25, deadline=None)
@given(
    ticks=latencies,
    period=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.4]),
    thinker=st.sampled_from(["pipelined", "serial"]),
    actions=st.sampled_from(["continuous", 5, 4]),
    by_execution=st.booleans(),
    mode=st.sampled_from(["concurrent", "hold"]),
    seed=st.integers(0, 999),
)
def test_a_task_on_the_clock_is_the_task_in_simulation(
    ticks, period, share, thinker, actions, by_execution, mode, seed
):
    """Targets are relative to the place at the switch; vector-to-go is that at the capture."""
    if mode == "hold":  # it waits for every decision, and needs an action that is none
        share, actions = 0.0, 5 if actions == 4 else actions
    model = PerStep(tuple(0.005 * t for t in ticks)) if len(ticks) > 1 else Fixed(0.005 * ticks[0])
    if share:
        model = Lossy(model, share)
    knowledge = (*KNOWLEDGE, "vector_to_go")
    paced = {"execution" if by_execution else "period": 0.005 * period}
    env = TaskEnv(
        "cartpole", latency=latency_text(model), actions=actions, knowledge=knowledge,
        thinker=thinker, mode=mode, **paced,
    )  # fmt: skip
    policy = decide(env.action_space)
    row, _ = env.reset(seed=seed)
    rows, decided = [row], []
    for _ in range(8):
        decided.append(policy(row))
        row, *_ = env.step(decided[-1])
        rows.append(row)

    timing, longest = env.vector.timing, env.vector.hints.longest_episode
    rng = np.random.default_rng(seed)
    env.vector.task.initial(rng)  # the start comes first, from the same generator
    latency, _, lost = timing.episode(rng)(longest)
    draws = zip((latency * timing.tick_s).tolist(), lost.tolist(), strict=True)
    clock = VirtualClock()
    body = TaskBody("cartpole", None if actions == "continuous" else actions)
    robot = ClockedRobot(body, clock, seed=seed)
    senses = Senses(
        robot.declared,
        knowledge,
        pending_slots=timing.pending_slots,
        selection_scale_s=timing.selection_scale_s,
    )
    pace = Pace(mode, timing.period_s, timing.execution_s)
    seen, acted, _ = lived(robot, policy, timing, senses, pace, clock, draws, 9)
    assert [np.asarray(a).tobytes() for a in acted[:8]] == [
        np.asarray(a).tobytes() for a in decided
    ]
    assert [r.tobytes() for r in seen] == [r.tobytes() for r in rows]


@pytest.mark.parametrize("ticks", [1, 3, 9])
def test_blocking_is_latency_0_whatever_the_thought_takes(ticks):
    bare, twin = Odometer(False), Odometer(False)
    env = Concurrent(bare, 0.0, KNOWLEDGE, step_s=STEP_S, period=2 * STEP_S)
    policy = decide(bare.action_space)
    row, _ = env.reset(seed=3)
    rows = [row]
    for _ in range(6):
        row, *_ = env.step(policy(row))
        rows.append(row)
    clock = VirtualClock()
    robot = ClockedRobot(GymBody(twin, STEP_S), clock, seed=3)
    senses = Senses(robot.declared, KNOWLEDGE)
    draws = itertools.repeat((ticks * STEP_S, False))
    pace = Pace("blocking", 2 * STEP_S)
    seen, _, runtime = lived(robot, policy, env.timing, senses, pace, clock, draws, 7)
    assert [r.tobytes() for r in seen] == [r.tobytes() for r in rows]
    assert clock.now_s() == pytest.approx(6 * (2 + ticks) * STEP_S)
    assert runtime.flight.latency == 0


@pytest.mark.parametrize("ticks", [1, 4])
def test_hold_rests_while_it_thinks_and_the_world_goes_on(ticks):
    """By the words of the rule: rest for the latency, act for the period, again and again."""
    bare, twin = Odometer(False), Odometer(False)
    policy, clock = decide(bare.action_space), VirtualClock()
    robot = ClockedRobot(GymBody(twin, STEP_S), clock, seed=5)
    senses = Senses(robot.declared)
    draws = itertools.repeat((ticks * STEP_S, False))
    timing = Concurrent(Odometer(False), step_s=STEP_S).timing
    pace = Pace("hold", 3 * STEP_S)
    seen, _, _ = lived(robot, policy, timing, senses, pace, clock, draws, 5)
    row, _ = bare.reset(seed=5)
    rows = [row]
    for _ in range(4):
        action = policy(row)
        for told in [np.zeros(2, np.float32)] * ticks + [action] * 3:
            row, *_ = bare.step(told)
        rows.append(row)
    assert [r.tobytes() for r in seen] == [r.tobytes() for r in rows]
    assert [a.tobytes() for a in twin.tape] == [a.tobytes() for a in bare.tape]
