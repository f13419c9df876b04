"""Deadlines, what is dropped, what is known, what never reaches the robot: on a virtual clock."""

import itertools
import threading

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.policies import as_policy
from midstride.realtime.clock import VirtualClock, WallClock, steady
from midstride.realtime.robot import Declared, Observation, RobotFault, Sent
from midstride.realtime.runtime import Pace, Runtime
from midstride.realtime.senses import Senses
from midstride.realtime.thinker import DrawnThinker, Thought, ThreadThinker


class Tape:
    """A robot that writes down what it is told, and when; observes the time."""

    def __init__(self, clock, looks_s=0.0, takes_s=0.0, sends=lambda action: action):
        self.clock, self.looks_s, self.takes_s, self.sends = clock, looks_s, takes_s, sends
        self.told, self.captures, self.state, self.fault = [], [], "armed", None
        box = spaces.Box(-9, 9, (1,), np.float64)
        self.declared = Declared("tape", box, box, ("time",))

    def get_observation(self):
        at_s = self.clock.now_s()
        self.captures.append(at_s)
        self.clock.sleep_until(at_s + self.looks_s)
        return Observation(np.array([at_s]), at_s, state=self.state, fault=self.fault)

    def send_action(self, action, stamp):
        self.clock.sleep_until(self.clock.now_s() + self.takes_s)
        action = self.sends(action)
        self.told.append((self.clock.now_s(), stamp.number, float(action[0])))
        return Sent(action, self.clock.now_s())


def count():
    numbers = itertools.count(1)
    return as_policy(lambda row: np.array([float(next(numbers))]))


def drawn(clock, latencies_s, is_serial=False, policy=None):
    steps = ((latency, False) for latency in itertools.cycle(latencies_s))
    return DrawnThinker(policy or count(), clock, steps, is_serial)


def run(runtime, cycles):
    return list(itertools.islice(runtime.cycles(), cycles))


@settings(max_examples=60, deadline=None)
@given(late_s=st.lists(st.floats(0, 0.35), min_size=1, max_size=9), start_s=st.floats(0, 1e5))
def test_captures_stay_on_the_grid_however_late_the_sleeper_wakes(late_s, start_s):
    overshoots = itertools.cycle(late_s)
    clock = VirtualClock(start_s, lambda: next(overshoots))
    robot = Tape(clock)
    runtime = Runtime(
        robot, drawn(clock, [0.02]), Senses(robot.declared), Pace(period_s=0.1), clock
    )
    run(runtime, 12)
    since = np.array(robot.captures) - start_s
    cycles = np.floor(since / 0.1 + 1e-6)
    assert (np.diff(cycles) >= 1).all()  # each in a cycle of its own
    if max(late_s) < 0.04:  # and it does not wander: a sleep to the switch, one to the capture
        assert (since - 0.1 * cycles <= max(late_s) + 1e-5).all()
    runtime.journal.close()
    assert runtime.journal.counts["missed"] == cycles[-1] - (len(cycles) - 1)


def test_a_thought_that_lasts_skips_cycles_and_they_are_counted():
    clock = VirtualClock()
    robot = Tape(clock)
    thinker = drawn(clock, [0.25], is_serial=True)
    runtime = Runtime(robot, thinker, Senses(robot.declared), Pace(period_s=0.1), clock)
    run(runtime, 4)
    assert robot.captures == pytest.approx([0, 0.3, 0.6, 0.9])
    assert [at_s for at_s, _, _ in robot.told] == pytest.approx([0.25, 0.55, 0.85])
    assert runtime.journal.counts["missed"] == 6
    assert runtime.starved == 0


def test_the_newest_observation_wins_and_the_overtaken_decision_is_dropped():
    clock = VirtualClock()
    robot = Tape(clock)
    thinker = drawn(clock, [0.25, 0.05])
    runtime = Runtime(robot, thinker, Senses(robot.declared), Pace(period_s=0.1), clock)
    run(runtime, 5)
    assert [(round(at_s, 6), number) for at_s, number, _ in robot.told] == [(0.15, 1), (0.35, 3)]
    assert runtime.journal.counts["stale"] == 2
    assert runtime.starved == 2
    fates = {one.number: one.fate for one in runtime.journal.settled()}
    assert fates == {0: "stale", 1: "in force", 2: "stale", 3: "in force"}


def test_latency_counts_from_the_capture_to_when_the_robot_took_it():
    """Looking takes 10 ms, thinking 20, taking 5; what is known of it is their sum."""
    clock = VirtualClock()
    robot = Tape(clock, looks_s=0.01, takes_s=0.005)
    senses = Senses(robot.declared, ("selection_time",), selection_scale_s=0.1)
    runtime = Runtime(robot, drawn(clock, [0.03]), senses, Pace(period_s=0.1), clock)
    cycles = run(runtime, 3)
    assert [c.row[1] for c in cycles] == pytest.approx([0, 0.35, 0.35])
    first = runtime.journal.settled()[0]
    assert first.latency_s == pytest.approx(0.035)
    assert first.observation_s == pytest.approx(0.01)
    assert first.taken_s - first.sent_s == pytest.approx(0.005)


def test_what_is_known_of_an_action_is_what_was_sent():
    clock = VirtualClock()
    robot = Tape(clock, sends=lambda action: np.minimum(action, 2.0))
    senses = Senses(robot.declared, ("previous_action",))
    runtime = Runtime(robot, drawn(clock, [0.02]), senses, Pace(period_s=0.1), clock)
    cycles = run(runtime, 5)
    assert [9 * c.row[1] for c in cycles] == pytest.approx([0, 1, 2, 2, 2])


def test_a_chunk_is_played_from_its_capture_and_only_its_decision_is_new():
    class Chunks:
        def __init__(self, clock):
            self.wake, self.thoughts = threading.Event(), []

        def think(self, number, captured_s, row):
            actions = tuple(np.array([10.0 * number + k]) for k in range(3))
            due_s = captured_s + 0.06
            starts_s = (0.0, 0.05, 0.15)
            self.thoughts.append(Thought(number, actions, due_s, captured_s, due_s, starts_s))

        def collect(self):
            found, self.thoughts = self.thoughts, []
            return found

        def is_free(self):
            return True

    clock = VirtualClock()
    robot = Tape(clock)
    pace = Pace(period_s=0.2)
    runtime = Runtime(robot, Chunks(clock), Senses(robot.declared), pace, clock)
    run(runtime, 3)
    assert [(round(at_s, 6), n, action) for at_s, n, action in robot.told] == [
        (0.06, 0, 1.0), (0.15, 0, 2.0), (0.26, 1, 11.0), (0.35, 1, 12.0),
    ]  # fmt: skip
    assert runtime.journal.counts["in force"] == 2


def test_warming_up_sends_nothing_and_is_forgotten():
    clock = VirtualClock()
    robot = Tape(clock)
    seen = []
    policy = as_policy(lambda row: seen.append(row.copy()) or np.zeros(1))
    thinker = ThreadThinker(policy, clock)
    runtime = Runtime(robot, thinker, Senses(robot.declared), Pace(period_s=0.1), clock)
    runtime.warm_up()
    assert len(seen) == 3
    assert robot.told == []


def test_a_robot_that_is_stopped_ends_the_run_with_what_it_says():
    clock = VirtualClock()
    robot = Tape(clock)
    cycles = Runtime(
        robot, drawn(clock, [0.02]), Senses(robot.declared), Pace(period_s=0.1), clock
    ).cycles()
    next(cycles)
    robot.state, robot.fault = "stopping", "no fresh command came for 250 ms"
    with pytest.raises(RobotFault, match="is stopping: no fresh command came for 250 ms"):
        next(cycles)


def test_a_policy_that_fails_ends_the_run_with_its_error():
    """On the wall clock, in its own thread."""

    def fails(row):
        raise ValueError("no such weather")

    clock = WallClock()
    robot = Tape(clock)
    thinker = ThreadThinker(as_policy(fails), clock)
    runtime = Runtime(robot, thinker, Senses(robot.declared), Pace(period_s=0.01), clock)
    with pytest.raises(ValueError, match="no such weather"):
        run(runtime, 1000)
    thinker.close()
    assert robot.told == []


@pytest.mark.parametrize("workers", [1, 2])
def test_on_the_wall_clock_every_decision_is_commanded_in_order(workers):
    clock = WallClock()
    robot = Tape(clock)
    thinker = ThreadThinker(count(), clock, workers)
    runtime = Runtime(robot, thinker, Senses(robot.declared), Pace(period_s=0.002), clock)
    with steady():
        run(runtime, 40)
    thinker.close()
    numbers = [number for _, number, _ in robot.told]
    assert numbers == sorted(set(numbers))
    settled = runtime.journal.settled()
    assert {one.fate for one in settled} <= {"in force", "stale"}
    for one in settled:
        assert one.captured_s <= one.seen_s <= one.began_s <= one.done_s
        if one.fate == "in force":
            assert one.done_s <= one.sent_s <= one.taken_s
            assert one.latency_s == pytest.approx(
                one.observation_s + one.inference_s + one.command_s
            )


def test_who_sleeps_on_the_wall_clock_wakes_at_a_call():
    clock, wake = WallClock(), threading.Event()
    wake.set()
    before_s = clock.now_s()
    clock.sleep_until(before_s + 1e6, wake)  # or this test would never end
    assert clock.now_s() >= before_s


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"mode": "blind", "period_s": 0.1}, "mode must be concurrent, hold, rest, blocking"),
        ({}, "either a period or an execution"),
        ({"period_s": 0.1, "execution_s": 0.1}, "either a period or an execution"),
        ({"period_s": 0.0}, "at least a microsecond"),
        ({"period_s": float("nan")}, "finite time"),
    ],
)
def test_a_pace_that_cannot_be_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        Pace(**arguments)


def test_a_real_world_does_not_wait():
    robot = Tape(VirtualClock())
    with pytest.raises(ValueError, match="tape cannot make the world wait"):
        Runtime(
            robot, drawn(robot.clock, [0.0]), Senses(robot.declared), Pace("blocking", 0.1),
            robot.clock,
        )  # fmt: skip
