"""A fake with the shape of LeRobot's real class: numbers by feature name, clipped when sent."""

import itertools

import numpy as np
import pytest

from midstride.policies import as_policy
from midstride.realtime.clock import VirtualClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.drive import Resting, drive, plan_of
from midstride.realtime.lerobot import LeRobotBody, LeRobotRobot
from midstride.realtime.robot import Limits, RobotFault, Stamp
from midstride.realtime.runtime import Pace, Runtime
from midstride.realtime.senses import Senses
from midstride.realtime.thinker import DrawnThinker

JOINTS = ("shoulder_pan.pos", "elbow_flex.pos")


class FakeArm:
    """As lerobot.robots.so_follower: goal positions, at most `max_relative_target` at a time."""

    name = "fake_arm"

    def __init__(self, cameras=()):
        self.observation_features = {
            **dict.fromkeys(JOINTS, float), **dict.fromkeys(cameras, (4, 4, 3)),
        }  # fmt: skip
        self.action_features = dict.fromkeys(JOINTS, float)
        self.is_connected, self.places, self.told = False, dict.fromkeys(JOINTS, 0.0), []
        self.cameras = cameras

    def connect(self, calibrate=True):
        self.is_connected = True

    def get_observation(self):
        assert self.is_connected
        return {**self.places, **{name: np.full((4, 4, 3), 7, np.uint8) for name in self.cameras}}

    def send_action(self, action):
        assert set(action) == set(JOINTS)
        assert all(type(value) is float for value in action.values())
        sent = {
            name: self.places[name] + max(-5.0, min(5.0, goal - self.places[name]))
            for name, goal in action.items()
        }
        self.told.append(sent)
        self.places = dict(sent)
        return sent

    def disconnect(self):
        self.is_connected = False


def robot_of(arm, clock, **options):
    robot = LeRobotRobot(arm, clock, low=[-100, -100], high=[100, 100], **options)
    with pytest.warns(UserWarning, match="no watchdog"):
        robot.connect()
    return robot


def test_a_policy_knows_what_the_arm_was_actually_told():
    clock, arm = VirtualClock(), FakeArm()
    robot = robot_of(arm, clock)
    senses = Senses(robot.declared, ("previous_action", "vector_to_go"))
    steps = itertools.repeat((0.02, False))
    policy = as_policy(lambda row: np.array([50.0, -3.0], np.float32))
    thinker = DrawnThinker(policy, clock, steps, is_serial=False)
    runtime = Runtime(robot, thinker, senses, Pace(period_s=0.1), clock)
    rows = [cycle.row for cycle in itertools.islice(runtime.cycles(), 3)]
    assert rows[0].tolist() == [0, 0, 0, 0, 0, 0]
    assert rows[1][:4] == pytest.approx([5, -3, 0.05, -0.03])  # 5 of 50, in units of the range
    assert rows[2][:4] == pytest.approx([10, -3, 0.1, -0.03])
    robot.stop()
    assert arm.told[-1] == arm.places
    robot.disconnect()
    assert not arm.is_connected


def test_what_is_no_action_is_not_sent():
    clock, arm = VirtualClock(), FakeArm()
    robot = robot_of(arm, clock)
    for wrong in ([np.nan, 0.0], [1.0], [[1.0, 2.0]]):
        assert "an action must be" in robot.send_action(wrong, Stamp(0)).refused
    assert arm.told == []
    robot.send_action([1e9, 0.0], Stamp(0))
    assert arm.told == [{JOINTS[0]: 5.0, JOINTS[1]: 0.0}]


def test_a_camera_is_the_image_of_the_policy():
    robot = robot_of(FakeArm(("wrist",)), VirtualClock(), camera="wrist")
    seen = robot.get_observation()
    assert seen.values in robot.declared.observation_space
    assert seen.values["image"].shape == (4, 4, 3)


def test_what_the_arm_does_not_have_is_said():
    with pytest.raises(ValueError, match="has no camera 'front': choose from wrist"):
        robot_of(FakeArm(("wrist",)), VirtualClock(), camera="front")
    with pytest.raises(ValueError, match=r"takes 2 numbers \(shoulder_pan.pos, elbow_flex.pos\)"):
        LeRobotRobot(FakeArm(), VirtualClock(), low=[0], high=[1])


# --- Served: with a watchdog and limits ----------------------------------------------------------

LIMITS = Limits(*(np.full(2, value) for value in (-100.0, 100.0, 50.0, 200.0, 4000.0)))
TICK_S = 0.02


class QuickArm(FakeArm):
    """Goes where it is told at once."""

    def send_action(self, action):
        self.told.append(dict(action))
        self.places = dict(action)
        return action


def served_arm(watchdog_s=0.2):
    clock, arm = VirtualClock(), QuickArm()
    robot = ClockedRobot(LeRobotBody(arm, LIMITS, TICK_S), clock, watchdog_s, limited=True)
    robot.connect()
    return clock, arm, robot


def test_a_served_arm_stops_when_nobody_commands_it_and_keeps_its_limits():
    clock, arm, robot = served_arm()
    robot.arm()
    for number in range(10):
        assert robot.send_action([90.0, -90.0], Stamp(number, clock.now_s())).refused is None
        for _ in range(5):
            clock.sleep_until(clock.now_s() + TICK_S)
            robot.catch_up()
    assert robot.watchdog.state == "armed"
    for _ in range(100):  # the policy is gone
        clock.sleep_until(clock.now_s() + TICK_S)
        robot.catch_up()
    assert robot.watchdog.state == "stopped"
    path = np.array([[told[name] for name in JOINTS] for told in arm.told])
    assert 30 < abs(path[-1, 0]) < 90  # on its way, and nowhere near its goal
    assert np.abs(np.diff(path, axis=0)).max() <= 50.0 * TICK_S + 1e-9
    # The last tenth of a second of a stop from 50 at 200 per second squared: it brakes, not halts.
    assert np.abs(np.diff(path[-6:], axis=0)).max() < 0.6 * 50.0 * TICK_S
    count = len(arm.told)
    clock.sleep_until(clock.now_s() + 1.0)
    robot.catch_up()
    assert len(arm.told) == count  # who is stopped is told nothing


def test_a_stall_of_its_process_is_no_jump_of_the_arm():
    clock, arm, robot = served_arm(watchdog_s=5.0)
    robot.arm()
    robot.send_action([90.0, 0.0], Stamp(0, clock.now_s()))
    for stall_s in (TICK_S, TICK_S, 0.7, TICK_S, 0.3, TICK_S):
        clock.sleep_until(clock.now_s() + stall_s)
        robot.catch_up()
    path = np.array([told[JOINTS[0]] for told in arm.told])
    assert len(path) == 6  # one for each time that it was looked at
    assert np.diff(path).max() <= 50.0 * TICK_S + 1e-9


def test_after_a_hand_has_moved_it_an_arm_starts_where_it_is():
    clock, arm, robot = served_arm()
    arm.places = {JOINTS[0]: 30.0, JOINTS[1]: -20.0}
    robot.arm()
    clock.sleep_until(clock.now_s() + TICK_S)
    robot.catch_up()
    assert arm.told[0] == pytest.approx({JOINTS[0]: 30.0, JOINTS[1]: -20.0})
    robot.stop()
    clock.sleep_until(clock.now_s() + 3 * TICK_S)
    robot.catch_up()
    arm.places[JOINTS[0]] = 101.0
    with pytest.raises(ValueError, match=r"outside of its limits: bring it within them by hand"):
        robot.arm()


def ticks(clock, robot, count):
    for _ in range(count):
        clock.sleep_until(clock.now_s() + TICK_S)
        robot.catch_up()


def test_who_is_not_armed_is_told_nothing_wherever_a_hand_moves_it():
    clock, arm, robot = served_arm()
    for place in (30.0, 150.0, -20.0):
        arm.places = dict.fromkeys(JOINTS, place)
        ticks(clock, robot, 5)
    assert arm.told == []
    robot.arm()
    ticks(clock, robot, 1)
    assert arm.told == [pytest.approx(dict.fromkeys(JOINTS, -20.0))]
    ticks(clock, robot, 30)  # the watchdog stops it
    assert robot.watchdog.state == "stopped"
    count = len(arm.told)
    arm.places = dict.fromkeys(JOINTS, 90.0)
    ticks(clock, robot, 5)
    assert len(arm.told) == count


def test_who_moves_is_not_armed_anew_from_where_it_was_measured():
    clock, arm, robot = served_arm()
    robot.arm()
    for number in range(20):
        robot.send_action([90.0, 90.0], Stamp(number, clock.now_s()))
        ticks(clock, robot, 1)
        arm.places = {name: place - 3.0 for name, place in arm.places.items()}  # it lags
        with pytest.raises(ValueError, match="armed already"):
            robot.arm()
    path = np.array([[told[name] for name in JOINTS] for told in arm.told])
    assert np.abs(np.diff(path, axis=0)).max() <= 50.0 * TICK_S + 1e-9
    assert (np.diff(path, axis=0) >= 0).all()


def test_the_world_of_a_real_arm_does_not_wait():
    clock, _, robot = served_arm()
    robot.arm()
    robot.send_action([90.0, 90.0], Stamp(0, clock.now_s()))
    ticks(clock, robot, 5)
    with pytest.raises(ValueError, match="the world of fake_arm cannot be made to wait"):
        robot.pause()
    ticks(clock, robot, 100)
    assert robot.watchdog.state == "stopped"


def pushing(robot, clock, mode):
    thinker = DrawnThinker(
        as_policy(lambda row: np.array([50.0, -50.0], np.float32)),
        clock, itertools.repeat((0.06, False)), is_serial=True,
    )  # fmt: skip
    return Runtime(robot, thinker, Senses(robot.declared), Pace(mode, 0.1), clock)


def test_in_the_mode_hold_an_arm_rests_while_the_policy_thinks():
    clock, arm, robot = served_arm()
    robot.arm()
    for cycle in itertools.islice(pushing(robot, clock, "hold").cycles(), 12):
        if cycle.number:
            assert robot.get_observation().target == pytest.approx(robot.limiter.position)
    assert robot.watchdog.state == "armed"
    assert arm.places[JOINTS[0]] > 1  # it is looked at now and then, and moves a tick each time
    # In the policy's own process, too: it is told where it is at every capture.
    clock, arm = VirtualClock(), FakeArm()
    robot = robot_of(arm, clock)
    list(itertools.islice(pushing(robot, clock, "hold").cycles(), 4))
    assert [told[JOINTS[0]] for told in arm.told] == [0, 5, 5, 10, 10, 15, 15]


def test_an_arm_that_cannot_rest_is_not_held():
    arm = FakeArm(("wrist",))
    arm.observation_features = {"wrist": (4, 4, 3)}
    robot = robot_of(arm, VirtualClock(), camera="wrist")
    with pytest.raises(RobotFault, match="does not rest while the policy thinks"):
        next(pushing(robot, robot._clock, "hold").cycles())


def test_the_latencies_of_an_arm_are_measured_without_moving_it():
    clock, arm, robot = served_arm()
    arm.places = {JOINTS[0]: 30.0, JOINTS[1]: -20.0}
    policy = as_policy(lambda row: np.array([50.0, -50.0], np.float32))
    plan = plan_of(robot.declared, None, "concurrent", 0.1)
    draws = itertools.repeat((0.06, False))
    thinks = lambda chosen: DrawnThinker(chosen, clock, draws, is_serial=True)  # noqa: E731
    more = lambda run: run.captures < 12  # noqa: E731
    run = drive(Resting(robot), policy, plan, clock, more, thinks=thinks)
    assert run.ended == ""
    assert run.count("in force") == 11
    assert arm.places == pytest.approx({JOINTS[0]: 30.0, JOINTS[1]: -20.0})


def test_in_the_policys_own_process_it_says_that_nobody_watches():
    robot = LeRobotRobot(FakeArm(), VirtualClock(), low=[-1, -1], high=[1, 1])
    with pytest.warns(UserWarning, match="has no watchdog in the policy's own process"):
        robot.connect()
    assert robot.declared.watchdog_s is None


def test_an_arm_that_does_not_observe_where_it_is_cannot_be_served():
    arm = FakeArm()
    arm.observation_features = {"camera": (4, 4, 3)}
    with pytest.raises(ValueError, match="does not observe all the places that it is told"):
        LeRobotBody(arm, LIMITS)
