"""The arm's hand as a robot: it goes where it is told, within limits; a script grasps with it."""

import itertools

import numpy as np
import pytest

from midstride.policies import as_policy
from midstride.realtime.clock import VirtualClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.drive import plan_of
from midstride.realtime.hand import HandBody
from midstride.realtime.robot import Stamp
from midstride.realtime.runtime import Runtime
from midstride.realtime.thinker import DrawnThinker
from midstride.tasks.grasp import kinematics
from midstride.tasks.grasp.settings import GraspSettings
from tests.realtime.test_safety import outside

SETTINGS = GraspSettings(
    observation="state", scenes=4, knowledge=("previous_action", "vector_to_go")
)


@pytest.fixture(scope="module")
def body():
    return HandBody(SETTINGS)


def fetch(row):
    """Over the nearest object, down, close, up: by what a state policy sees."""
    opening, height = row[0], row[1]
    dx, dy, dz = 0.1 * row[6:9]  # metres to the nearest object
    above = np.hypot(dx, dy) > 0.012
    action = np.zeros(7, np.float32)
    if opening < 0.8:  # holds something, or tries to
        action[2], action[4] = 1.0, 1.0
        return action
    action[:2] = np.clip(np.array([dx, dy]) / 0.06, -1, 1)
    if above:
        action[2] = np.clip((0.1 - height * 0.188) / 0.06, -1, 1)
    elif dz < -0.012:
        action[2] = np.clip(dz / 0.06, -1, 1)
    else:
        action[:3], action[4] = 0.0, 1.0
    return action


def test_a_script_lifts_an_object_and_limits_are_kept(body):
    clock, ticks = VirtualClock(), []
    robot = ClockedRobot(body, clock, 1.0, limited=True, seed=2, on_tick=ticks.append)
    robot.connect()
    envs = SETTINGS.make(1)
    plan = plan_of(robot.declared, (envs.layout, envs.timing), "concurrent")
    assert plan.senses.layout.columns[:3] == envs.layout.columns[:3]
    assert plan.senses.observation_space == envs.single_observation_space
    envs.close()
    steps = itertools.repeat((0.1, False))
    thinker = DrawnThinker(as_policy(fetch), clock, steps, is_serial=False)
    runtime = Runtime(robot, thinker, plan.senses, plan.pace, clock)
    robot.arm()
    scores = [c.seen.score for c in itertools.islice(runtime.cycles(), 25)]
    assert max(scores) == 1.0
    path = zip(*[(t.place, t.velocity, t.acceleration) for t in ticks], strict=True)
    assert outside(robot.declared.limits, *path, tick_s=body.tick_s) < 1e-6


def test_the_hand_arrives_where_it_was_told_and_knows_what_is_left(body):
    clock = VirtualClock()
    robot = ClockedRobot(body, clock, 5.0, limited=True, seed=0)
    robot.connect()
    robot.arm()
    before = robot.get_observation()
    robot.send_action([0.5, -0.5, 0.3, 0.4, 1.0, 0.0, 0.0], Stamp(0, 0.0))
    seen = robot.get_observation()
    asked = np.array([0.03, -0.03, 0.018, 0.2])
    limits = robot.declared.limits
    wanted = np.clip(before.position[:4] + asked, limits.low[:4], limits.high[:4])
    assert seen.target == pytest.approx([*wanted, 0.0], abs=1e-6)
    clock.sleep_until(2.0)
    after = robot.get_observation()
    assert after.position[:4] == pytest.approx(wanted, abs=0.006)
    assert after.position[4] < 0.1
    assert robot.limiter.is_at_rest
    assert not after.over
    robot.send_action([0, 0, 0, 0, 0, 0, 1.0], Stamp(1, clock.now_s()))
    assert robot.get_observation().over


@pytest.mark.parametrize("k", range(4))
def test_it_moves_as_the_world_of_training_does(k):
    """The same actions at the same ticks, through the limiter and without: the hand is close by.

    Not the same to the last bit: a reference with limited jerk is late by half of what its velocity
    changes in a turn. Without its guide it would be off by 12 to 30 mm in the mean.
    """
    robot = ClockedRobot(HandBody(SETTINGS), clock := VirtualClock(), 5.0, limited=True, seed=k)
    robot.connect()
    robot.arm()
    twin = HandBody(SETTINGS)
    twin.begin(k)
    world, one = twin._world, np.ones(1, bool)
    draw = np.random.default_rng(k)
    for number in range(2):
        action = np.zeros(7, np.float32)
        action[:4] = draw.uniform(-1, 1, 4)
        action[4 + number] = 1.0  # the fingers close, then open
        robot.send_action(action, Stamp(number, clock.now_s()))
        world.switch(one, action[None])
        off, turned, fingers = [], [], []
        for tick in range(60):
            if tick % 5 == 0:
                world.control(one, np.array([5]))
            world.physics(one, 1)
            clock.sleep_until(clock.now_s() + twin.tick_s)
            position = robot.get_observation().position
            off.append(np.linalg.norm(position[:3] - world.pose()[0, :3]))
            turned.append(abs(kinematics.difference(position[None, :4], world.pose())[0, 3]))
            fingers.append(abs(position[4] - world.opening()[0]))
        assert np.mean(off) < 0.003
        assert np.mean(turned) < 0.03
        assert np.mean(fingers) < 0.05


def test_it_sees():
    robot = ClockedRobot(HandBody(GraspSettings(scenes=1, image_size=16)), VirtualClock(), seed=0)
    robot.connect()
    seen = robot.get_observation()
    assert seen.values in robot.declared.observation_space
    assert seen.values["image"].std() > 5


def test_before_anything_moves_it_sees_what_a_policy_saw_in_training():
    """With one scene there is one beginning: pictures and columns are the same, to the last bit."""
    settings = GraspSettings(scenes=1, image_size=16)
    envs = settings.make(1)
    trained, _ = envs.reset(seed=3)
    envs.close()
    body = HandBody(settings)
    body.begin(8)
    seen = body.measure().values
    assert (seen["image"] == trained["image"][0]).all()
    assert (seen["state"] == trained["state"][0]).all()
