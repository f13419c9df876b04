"""Whatever is sent, and whoever dies: the robot keeps its limits, and stops. Virtual time."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.realtime.bodies import TaskBody
from midstride.realtime.clock import VirtualClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.limiter import Guide, Limiter, stop_path
from midstride.realtime.robot import STAY, Limits, Stamp
from midstride.realtime.watchdog import Watchdog

TICK_S, PATIENCE_S = 0.005, 0.2
LIMITS = Limits(*np.array([[-1.8, 0.0], [1.8, 0.3], [8.0, 0.2], [200.0, 1.2], [2e4, 12.0]]))


def outside(limits, places, velocities, accelerations, tick_s=TICK_S):
    """By how much a path leaves the limits; jerk and speed from differences, not from the plan."""
    places, velocities, accelerations = map(np.asarray, (places, velocities, accelerations))
    jerks = np.diff(accelerations, axis=0, prepend=0 * accelerations[:1]) / tick_s
    moved = np.diff(places, axis=0) / tick_s
    sped = np.diff(velocities, axis=0, prepend=0 * velocities[:1]) / tick_s
    return max(
        (places - limits.high).max(),
        (limits.low - places).max(),
        (np.abs(velocities) - limits.velocity).max(),
        (np.abs(moved) - limits.velocity).max(initial=-1.0),
        ((np.abs(accelerations) - limits.acceleration) / limits.acceleration).max(),
        ((np.abs(sped) - limits.acceleration) / limits.acceleration).max(),
        ((np.abs(jerks) - limits.jerk) / limits.jerk).max(),
    )


@settings(max_examples=100, deadline=None)
@given(
    commands=st.lists(
        st.tuples(
            st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2),
            st.integers(1, 60),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_reference_stays_within_all_limits_wherever_it_is_sent(commands):
    limiter = Limiter(LIMITS, TICK_S)
    path = []
    for target, ticks, stops in commands:
        limiter.aim(np.array(target))
        for tick in range(ticks):
            if stops and tick == ticks // 2:
                limiter.brake()
            limiter.step()
            path.append((limiter.planned, limiter.velocity, limiter.acceleration))
    assert outside(LIMITS, *zip(*path, strict=True)) < 1e-6


@settings(max_examples=60, deadline=None)
@given(
    commands=st.lists(
        st.tuples(
            st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2),
            st.integers(1, 40),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    ),
    advice=st.lists(
        st.lists(st.sampled_from([-1e9, -8.0, -0.2, -0.01, 0.0, 0.05, 8.0, np.nan]), min_size=2,
                 max_size=2), min_size=1, max_size=12
    ),
    moods=st.lists(st.booleans(), min_size=1, max_size=9),
)  # fmt: skip
def test_however_it_is_guided_it_stays_within_all_limits_and_a_brake_brings_it_to_rest(
    commands, advice, moods
):
    """Ruckig finds nothing now and then, whatever is asked of it."""
    coming, moody = itertools.cycle(np.array(advice)), itertools.cycle(moods)
    limiter = Limiter(LIMITS, TICK_S, Guide(lambda place, velocity, target: next(coming), 4))
    found, path = limiter._way, []
    limiter._way = lambda *state: found(*state) if next(moody) else None

    def live(ticks):
        for _ in range(ticks):
            limiter.step()
            path.append((limiter.planned, limiter.velocity, limiter.acceleration))

    for target, ticks, stops in commands:
        limiter.aim(np.array(target))
        live(ticks // 2)
        if stops:
            limiter.brake()
        live(ticks - ticks // 2)
    limiter._way, begun = found, path[-1]
    moves = not limiter.is_at_rest
    limiter.brake()
    far, seconds = stop_path(LIMITS, begun[1], begun[2])
    live(int(seconds.max() / TICK_S) + 3)
    assert limiter.is_at_rest
    if moves and not commands[-1][2]:
        assert path[-1][0] == pytest.approx(begun[0] + far, abs=1e-6)
    assert outside(LIMITS, *zip(*path, strict=True)) < 1e-6


def test_a_guide_leads_along_its_way_turn_by_turn():
    """It asks for one velocity, at its third turn for another; between turns nothing changes."""
    asked = []

    def velocity(place, now, target):
        asked.append((place.copy(), now.copy(), target.copy()))
        return np.array([0.4 if len(asked) < 3 else 0.2, 0.0])

    limiter = Limiter(LIMITS, TICK_S, Guide(velocity, 4))
    limiter.aim(np.array([1.0, 0.0]))
    speeds = [(limiter.step(), limiter.velocity[0])[1] for _ in range(12)]
    assert len(asked) == 3
    # 0.4 m/s with at most 200 m/s^2 and 2e4 m/s^3: there after 2 sqrt(0.4 / 2e4) = 9 ms
    assert speeds[1:8] == pytest.approx([0.4] * 7)
    assert speeds[9:] == pytest.approx([0.2] * 3)
    assert asked[1][1][0] == pytest.approx(0.4)
    assert asked[2][0][0] - asked[1][0][0] == pytest.approx(0.4 * 4 * TICK_S)
    limiter.aim(np.array([0.5, 0.0]))  # a new target is a turn
    limiter.step()
    assert len(asked) == 4
    assert asked[3][2][0] == 0.5


def test_who_is_guided_and_finds_nothing_more_comes_to_rest(monkeypatch):
    limiter = Limiter(LIMITS, TICK_S, Guide(lambda *state: np.array([0.4, 0.0]), 4))
    limiter.aim(np.array([1.0, 0.0]))
    for _ in range(4):
        begun = limiter.step()
    far, _ = stop_path(LIMITS, limiter.velocity, limiter.acceleration)
    monkeypatch.setattr(limiter, "_way", lambda *state: None)
    for _ in range(10):
        limiter.step()
    assert limiter.is_at_rest
    assert limiter.position == pytest.approx(begun + far, abs=1e-9)
    monkeypatch.undo()
    for _ in range(4):
        limiter.step()
    assert limiter.velocity[0] == pytest.approx(0.4)


@pytest.mark.parametrize("opening", [0.3817645232228928, 0.3855743718661576])
def test_fingers_told_to_stay_when_they_just_began_keep_limits(opening):
    """Ruckig finds nothing with the whole jerk; with a tenth less it braked out of the limits."""
    one = Limits(*np.array([[0.0], [1.0], [100.0], [2e4], [4e6]]))
    limiter, path = Limiter(one, 0.004), []
    limiter.place(np.array([opening]))
    limiter.aim(np.array([0.0]))
    limiter.step()
    limiter.aim(limiter.position)
    for _ in range(20):
        limiter.step()
        path.append((limiter.planned, limiter.velocity, limiter.acceleration))
    assert outside(one, *zip(*path, strict=True), 0.004) < 1e-6


@pytest.mark.parametrize(
    ("position", "velocity", "acceleration", "target"),
    [
        (1.798333333333333, -1.000000000000016, -400.0, None),
        (-1.78, 0.0, 0.0, -1.8),
    ],
)
def test_states_that_ruckig_gives_up_on_are_planned_all_the_same(
    position, velocity, acceleration, target
):
    """Exactly between two shapes of a profile; found by an attack on the server."""
    limits = Limits(*np.array([[-1.8], [1.8], [12.0], [400.0], [8e4]]))
    limiter = Limiter(limits, TICK_S)
    limiter.place(np.array([position]))
    limiter.velocity, limiter.acceleration = np.array([velocity]), np.array([acceleration])
    limiter.aim(np.array([0.0 if target is None else target]))
    if target is None:
        limiter._path = object()  # it moves
        limiter.brake()
    path = [(limiter.position, limiter.velocity, limiter.acceleration)]
    path += [(limiter.step(), limiter.velocity, limiter.acceleration) for _ in range(200)]
    places, velocities, accelerations = (np.array(part) for part in zip(*path, strict=True))
    assert limiter.is_at_rest
    assert np.abs(np.diff(accelerations, axis=0)).max() / TICK_S <= 8e4 * (1 + 1e-6)
    assert np.abs(velocities).max() <= 12
    if target is not None:
        assert places[-1] == pytest.approx(target, abs=1e-9)


def test_where_nothing_can_be_planned_the_plan_before_is_followed(monkeypatch):
    limits = Limits(*np.array([[-1.8], [1.8], [12.0], [400.0], [8e4]]))
    limiter, twin = Limiter(limits, TICK_S), Limiter(limits, TICK_S)
    for each in (limiter, twin):
        each.aim(np.array([1.0]))
        each.step()

    class GivesUp:
        def calculate(self, asked, path):
            raise limiter._ruckig.RuckigError

    monkeypatch.setattr(limiter, "_generator", GivesUp())
    limiter.aim(np.array([-1.0]))
    assert [limiter.step() for _ in range(9)] == [twin.step() for _ in range(9)]
    monkeypatch.undo()
    for _ in range(300):
        limiter.step()
    assert limiter.position == pytest.approx(-1.0)


@pytest.mark.parametrize("velocity", [0.001, 0.05, 0.5, 4.0, 8.0])
def test_a_stop_is_as_long_as_a_formula_says(velocity):
    """From constant velocity: acceleration ramps up, may saturate, ramps down."""
    a, j = float(LIMITS.acceleration[0]), float(LIMITS.jerk[0])
    seconds = velocity / a + a / j if velocity >= a * a / j else 2 * np.sqrt(velocity / j)
    distance, lasts_s = stop_path(LIMITS, [velocity, 0.0], [0.0, 0.0])
    assert distance[0] == pytest.approx(velocity * seconds / 2)
    assert lasts_s[0] == pytest.approx(seconds)
    assert (distance[1], lasts_s[1]) == (0, 0)


CARTPOLE = TaskBody("cartpole")


def armed(clock, seed=0):
    ticks = []
    robot = ClockedRobot(CARTPOLE, clock, PATIENCE_S, limited=True, seed=seed, on_tick=ticks.append)
    robot.connect()
    robot.arm()
    return robot, ticks


# What a policy's process may do to the robot: (kind, value, seconds before it)
faults = st.one_of(
    st.tuples(st.just("move"), st.floats(-1, 1), st.sampled_from([0.01, 0.05])),
    st.tuples(st.just("jump"), st.floats(-1e9, 1e9), st.sampled_from([0.0, 0.001, 0.03])),
    st.tuples(
        st.just("garbage"),
        st.sampled_from([np.nan, np.inf, "left", None, (1.0, 2.0), [[0.5]], True, {}, b"\x00"]),
        st.just(0.01),
    ),
    st.tuples(st.just("replay"), st.integers(-5, 0), st.just(0.02)),
    st.tuples(st.just("old"), st.floats(0.2001, 100), st.just(0.02)),
    st.tuples(st.just("future"), st.floats(0.002, 1e9), st.just(0.02)),
    st.tuples(st.just("stall"), st.none(), st.floats(0.0, 0.6)),
    st.tuples(st.just("stop"), st.none(), st.just(0.03)),
    st.tuples(st.just("arm"), st.none(), st.sampled_from([0.05, 0.3])),
    st.tuples(st.just("no decision"), st.floats(-1, 1), st.sampled_from([0.005, 0.05])),
)


@settings(max_examples=60, deadline=None)
@given(deeds=st.lists(faults, min_size=1, max_size=25), seed=st.integers(0, 9))
def test_no_command_leaves_the_limits_and_nothing_moves_after_the_watchdogs_time(deeds, seed):
    clock = VirtualClock(100.0)
    robot, ticks = armed(clock, seed)
    limits = robot.declared.limits
    fresh_s, number = clock.now_s(), 0
    longest_s = float(stop_path(limits, limits.velocity, limits.acceleration)[1].max())
    for kind, value, wait_s in deeds:
        clock.sleep_until(clock.now_s() + wait_s)
        now_s, captured_s, action = clock.now_s(), clock.now_s() - 0.005, [0.5]
        number += 1
        stamp = Stamp(number, captured_s)
        if kind in ("move", "jump"):
            action = [value]
        elif kind == "garbage":
            action = value if not isinstance(value, float) else [value]
        elif kind == "replay":
            stamp = Stamp(max(0, number - 2 + value), captured_s)
        elif kind == "old":
            stamp = Stamp(number, now_s - value)
        elif kind == "future":
            stamp = Stamp(number, now_s + value)
        if kind == "stop":
            robot.stop()
        elif kind == "arm":
            if robot.get_observation().state in ("armed", "stopping"):
                with pytest.raises(ValueError, match=r"still stopping|armed already"):
                    robot.arm()
            else:
                robot.arm()
                fresh_s, number = now_s, 0
        elif kind == "no decision":
            sent, number = robot.send_action([value], Stamp()), number - 1
            if sent.refused is None:
                assert robot.get_observation().target == robot.limiter.position
        elif kind != "stall":
            sent = robot.send_action(action, stamp)
            is_harmless = kind in ("move", "jump")
            if sent.refused is None:
                assert kind in ("move", "jump", "replay")
                fresh_s = now_s if is_harmless else fresh_s
            elif is_harmless:
                assert robot.watchdog.state != "armed"
            if kind == "garbage":
                assert sent.refused
                assert robot.get_observation().state != "armed"
    clock.sleep_until(clock.now_s() + 1.0)
    seen = robot.get_observation()
    assert seen.state == "stopped"  # nobody sent anything for a second
    places = [tick.place for tick in ticks]
    path = places, [tick.velocity for tick in ticks], [tick.acceleration for tick in ticks]
    assert outside(limits, *path) < 1e-6
    still = [t for t in ticks if t.at_s > fresh_s + PATIENCE_S + longest_s + 2 * TICK_S]
    assert still
    assert len({tuple(tick.place) for tick in still}) == 1
    assert all((tick.velocity == 0).all() for tick in still)


@pytest.mark.parametrize("after", [0.03, 0.08, 0.1])
def test_the_stop_distance_is_as_computed(after):
    """A policy that dies in full motion; what is left of the way is known when the dog barks."""
    clock = VirtualClock()
    robot, ticks = armed(clock)
    sent_s = 0.0
    for number in range(4):  # each pushes the target on
        robot.send_action([1.0], Stamp(number, clock.now_s()))
        sent_s = clock.now_s()
        clock.sleep_until(clock.now_s() + after)
    clock.sleep_until(sent_s + 2.0)
    assert robot.get_observation().fault == "no fresh command came for 200 ms"
    barked = next(k for k, tick in enumerate(ticks) if tick.state != "armed")
    assert ticks[barked].at_s == pytest.approx(sent_s + PATIENCE_S, abs=TICK_S * 1.01)
    before = ticks[barked - 1]
    distance, _ = stop_path(robot.declared.limits, before.velocity, before.acceleration)
    assert ticks[-1].place - before.place == pytest.approx(distance, abs=1e-9)


def test_after_a_fault_it_stays_stopped_until_it_is_armed():
    clock = VirtualClock()
    robot, _ = armed(clock)
    robot.send_action([np.nan], Stamp(0, 0.0))
    with pytest.raises(ValueError, match="still stopping"):
        robot.arm()
    for number in range(1, 50):
        clock.sleep_until(clock.now_s() + 0.02)
        sent = robot.send_action([1.0], Stamp(number, clock.now_s()))
        assert "an action must be of Box" in sent.refused
    assert robot.get_observation().state == "stopped"
    robot.arm()
    assert robot.get_observation().fault is None
    assert robot.send_action([1.0], Stamp(0, clock.now_s())).refused is None


def test_neither_arming_nor_commands_without_a_decision_keep_it_alive_or_move_it():
    """A client that arms and sends actions that are no decisions, again and again."""
    clock = VirtualClock()
    robot, ticks = armed(clock)
    for k in range(40):
        robot.catch_up()
        if robot.watchdog.state == "armed":
            with pytest.raises(ValueError, match="armed already"):
                robot.arm()
        robot.send_action([(-1.0) ** k], Stamp(-1, 0.0))
        clock.sleep_until(clock.now_s() + 0.1)
    assert robot.get_observation().state == "stopped"
    assert robot.watchdog.fault == "no fresh command came for 200 ms"
    assert len({tuple(tick.place) for tick in ticks}) == 1
    assert ticks[-1].at_s > 3.9


def test_who_moves_and_is_told_to_stay_comes_back_to_where_its_reference_was():
    clock = VirtualClock()
    robot, ticks = armed(clock)
    robot.send_action([1.0], Stamp(0, clock.now_s()))
    clock.sleep_until(0.02)
    robot.send_action(STAY, Stamp(1, clock.now_s()))
    there = robot.limiter.position.copy()
    assert robot.get_observation().target == there
    clock.sleep_until(0.2)
    robot.catch_up()
    assert robot.watchdog.state == "armed"  # to decide to stay is a sign of life
    assert ticks[-1].place == pytest.approx(there, abs=1e-9)


def test_a_world_that_waits_is_looked_at_once_a_tick_and_goes_on_to_stop():
    clock = VirtualClock(1.0)
    robot, _ = armed(clock)
    robot.send_action([1.0], Stamp(0, clock.now_s()))
    clock.sleep_until(1.05)
    robot.pause()
    clock.sleep_until(7.0)
    assert robot.catch_up() == 0
    assert robot.next_tick_s() == pytest.approx(7.0 + TICK_S)
    robot.stop()
    clock.sleep_until(8.0)
    assert robot.get_observation().state == "stopped"


@pytest.mark.parametrize("action", [2**63, -(2**70), 5, -1, True, 1.0, None])
def test_a_choice_that_is_none_is_a_fault_however_large(action):
    clock = VirtualClock()
    robot = ClockedRobot(TaskBody("cartpole", 5), clock, PATIENCE_S, limited=True)
    robot.connect()
    robot.arm()
    assert "an action must be of Discrete(5)" in robot.send_action(action, Stamp(0, 0.0)).refused
    assert robot.watchdog.state == "stopping"


def test_repeating_a_decision_does_not_keep_the_watchdog_quiet():
    """The actions of a chunk move the robot; only a new thought is a sign of life."""
    dog = Watchdog(0.2)
    dog.arm(0.0)
    assert dog.refuses(Stamp(0, 0.0), 0.05) is None
    assert dog.refuses(Stamp(0, 0.0), 0.15) is None
    assert dog.look(0.25)
    assert not dog.look(0.26)
    assert dog.state == "stopping"


def test_who_is_never_armed_never_moves():
    clock, ticks = VirtualClock(), []
    robot = ClockedRobot(TaskBody("cartpole"), clock, 0.2, limited=True, on_tick=ticks.append)
    robot.connect()
    assert robot.send_action([1.0], Stamp(0, 0.0)).refused == "it is idle"
    clock.sleep_until(1.0)
    robot.get_observation()
    assert len({tuple(tick.place) for tick in ticks}) == 1
    assert len(ticks) == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": [1.0], "high": [1.0]}, {"jerk": [0.0]}, {"velocity": [np.nan]},
        {"acceleration": [1.0, 2.0]},
    ],
)  # fmt: skip
def test_limits_that_cannot_be_are_refused(wrong):
    given = {"low": [0.0], "high": [1.0], "velocity": [1.0], "acceleration": [1.0], "jerk": [1.0]}
    with pytest.raises(ValueError, match="must"):
        Limits(**{**given, **wrong})


def test_what_has_no_limits_cannot_be_kept_within_them():
    with pytest.raises(ValueError, match="pendulum declares no limits"):
        ClockedRobot(TaskBody("pendulum"), VirtualClock(), limited=True)
