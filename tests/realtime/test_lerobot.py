"""A fake with the shape of LeRobot's real class: numbers by feature name, clipped when sent."""

import itertools

import numpy as np
import pytest

from midstride.policies import as_policy
from midstride.realtime.clock import VirtualClock
from midstride.realtime.lerobot import LeRobotRobot
from midstride.realtime.robot import Stamp
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
        assert "an action must be" in robot.send_action(wrong, Stamp()).refused
    assert arm.told == []
    robot.send_action([1e9, 0.0], Stamp())
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
