"""What a robot recalls of a run is what it did; a hand says when it has arrived."""

import itertools

import mujoco
import numpy as np
import pytest

from midstride.latency import Fixed, Trace
from midstride.policies import as_policy
from midstride.realtime.bodies import GymBody, TaskBody
from midstride.realtime.clock import VirtualClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.drive import plan_of
from midstride.realtime.hand import HandBody
from midstride.realtime.recording import TURN_S
from midstride.realtime.remote import RemoteRobot
from midstride.realtime.robot import RobotFault, Stamp
from midstride.realtime.runtime import Pace, Runtime
from midstride.realtime.senses import Senses
from midstride.realtime.strange import Strange, Trembling
from midstride.realtime.thinker import DrawnThinker
from midstride.tasks.grasp.model import build
from midstride.tasks.grasp.objects import object_set
from midstride.tasks.grasp.settings import GraspSettings
from midstride.tasks.grasp.world import AT_LEAST_TICKS, AT_MOST_TICKS
from tests.realtime.test_server import TOKEN, served, wait_for


@pytest.fixture(scope="module")
def hand():
    return HandBody(GraspSettings(observation="state", scenes=2))


def test_a_robot_recalls_every_turn_and_every_switch():
    clock = VirtualClock()
    robot = ClockedRobot(TaskBody("cartpole"), clock, 1.0, limited=True, seed=0)
    robot.connect()
    robot.arm()
    seen = []
    for k in range(4):
        clock.sleep_until(0.05 * k + 0.003)
        robot.send_action([0.5], Stamp(k, clock.now_s()))
        seen.append(robot.get_observation())
    clock.sleep_until(0.3)
    with pytest.raises(ValueError, match="is armed: it recalls what is over"):
        robot.recall()
    robot.stop()
    clock.sleep_until(1.0)
    moments = robot.recall()
    switches = [m for m in moments if m.is_switch]
    assert [m.number for m in switches] == [0, 1, 2, 3]
    assert [m.at_s for m in switches] == pytest.approx([0.003, 0.053, 0.103, 0.153])
    for moment, then in zip(switches, seen, strict=True):
        assert moment.position == pytest.approx(then.position)
        assert moment.target == pytest.approx(then.target)
    turns = [m.at_s for m in moments if not m.is_switch]
    assert np.diff(turns) == pytest.approx(TURN_S)
    robot.arm()  # another run: the last one is forgotten
    robot.stop()
    clock.sleep_until(1.1)
    assert len(robot.recall()) <= 1


def test_pictures_show_the_robot_as_it_was():
    clock = VirtualClock()
    body = TaskBody("cartpole")
    robot = ClockedRobot(body, clock, 1.0, limited=True, seed=0)
    robot.connect()
    robot.arm()
    robot.send_action([1.0], Stamp(0, 0.0))
    clock.sleep_until(0.4)
    robot.stop()
    clock.sleep_until(0.8)
    first, last = robot.picture(0), robot.picture(len(robot.recall()) - 1)
    assert first.shape == last.shape
    assert (first != last).any()
    assert (robot.picture(0) == first).all()  # and now is not disturbed
    with pytest.raises(ValueError, match="and none is 999"):
        robot.picture(999)


def test_what_is_recalled_comes_over_the_wire_whole():
    with served() as server, RemoteRobot(str(server.address), TOKEN) as robot:
        assert robot.declared.recalls
        assert robot.declared.arrives_s is None
        robot.arm()
        robot.send_action([0.3], Stamp(0, robot.get_observation().captured_s))
        wait_for(lambda: len(server.robot._remembered) > 5)
        with pytest.raises(RobotFault, match="it recalls what is over"):
            robot.recall()
        robot.stop()
        wait_for(lambda: robot.get_observation().state == "stopped")
        moments, own = robot.recall(), server.robot.recall()
        assert [m.at_s for m in moments] == [m.at_s for m in own]
        assert [m.number for m in moments] == [m.number for m in own]
        assert moments[3].position == pytest.approx(own[3].position)
        assert (robot.picture(3) == server.robot.picture(3)).all()
        with pytest.raises(RobotFault, match="does not say when it has arrived"):
            robot.is_at_rest()


def test_a_hand_has_arrived_when_it_is_there_and_still(hand):
    clock = VirtualClock()
    robot = ClockedRobot(hand, clock, 10.0, limited=True, seed=1)
    robot.connect()
    robot.arm()
    robot.send_action([0.5, 0.5, 0.0, 0.2, 0, 0, 0], Stamp(0, 0.0))
    tick_s = hand.tick_s
    came = 0.0
    while not robot.is_at_rest():
        assert clock.now_s() < AT_MOST_TICKS * tick_s
        clock.sleep_until(clock.now_s() + tick_s)
        came = clock.now_s()
    assert came > AT_LEAST_TICKS * tick_s
    # 4.2 cm at 20 cm/s and 1.2 m/s^2 take at least 0.21 + 0.16 s.
    seen = robot.get_observation()
    assert seen.position[:3] == pytest.approx(seen.target[:3], abs=0.004)
    clock.sleep_until(came + 0.5)
    assert robot.get_observation().position == pytest.approx(seen.position, abs=0.004)


def test_in_the_mode_rest_every_observation_is_taken_at_rest(hand):
    clock = VirtualClock()
    robot = ClockedRobot(hand, clock, 10.0, limited=True, seed=1)
    robot.connect()
    plan = plan_of(robot.declared, None, "rest")
    assert plan.pace == Pace("rest")
    wiggle = itertools.cycle([[0.5, 0, 0, 0, 0, 0, 0], [-0.5, 0, 0, 0, 0, 0, 0]])
    policy = as_policy(lambda row: np.array(next(wiggle), np.float32))
    thinker = DrawnThinker(policy, clock, itertools.repeat((0.15, False)), is_serial=True)
    runtime = Runtime(robot, thinker, plan.senses, plan.pace, clock)
    robot.arm()
    cycles = list(itertools.islice(runtime.cycles(), 5))
    for cycle in cycles[1:]:
        assert cycle.seen.position[:3] == pytest.approx(cycle.seen.target[:3], abs=0.004)
    taken = [one.latency_s for one in runtime.journal.settled()]
    assert taken == pytest.approx([0.15] * len(taken), abs=2e-6)


def test_who_does_not_say_when_it_has_arrived_has_no_mode_rest():
    robot = ClockedRobot(TaskBody("cartpole"), VirtualClock())
    thinker = DrawnThinker(None, VirtualClock(), iter(()), is_serial=True)
    with pytest.raises(ValueError, match="cartpole does not say when it has arrived"):
        Runtime(robot, thinker, Senses(robot.declared), Pace("rest"), VirtualClock())
    with pytest.raises(ValueError, match="takes the time it takes"):
        Pace("rest", 0.3)


def test_a_strange_body_is_as_it_is_stated():
    designs = object_set("household")
    strange, usual = Strange(), build(designs[:1])
    model = build(designs[:1])
    strange.change(model)
    arm, fell = usual.body("link3").id, usual.body("object0").id
    assert model.body_mass[arm] == pytest.approx(1.1 * usual.body_mass[arm])
    assert model.body_mass[fell] == usual.body_mass[fell]
    assert strange.designs(designs)[0].mass == pytest.approx(1.5 * designs[0].mass)
    assert model.geom_friction[:, 0] == pytest.approx(0.8 * usual.geom_friction[:, 0])
    # A servo's torque, by MuJoCo itself: gain * target - gain * place - damping * speed.
    forces = []
    for one in (usual, model):
        data = mujoco.MjData(one)
        data.ctrl[0], data.qpos[0], data.qvel[0] = 0.004, 0.0, 0.0
        mujoco.mj_forward(one, data)
        forces.append(data.actuator_force[0])
    assert forces[1] == pytest.approx(0.85 * forces[0])
    settings = strange.settings(GraspSettings())
    assert (settings.object_set, settings.camera_jitter) == ("household", 0.01)


def test_a_trembling_latency_stays_around_the_trace():
    model = Trembling(Trace((0.1, 0.2)), 0.05)
    drawn = model.episode(np.random.default_rng(0))(2000)
    around = np.minimum(abs(drawn - 0.1), abs(drawn - 0.2))
    assert around.max() <= 0.05
    assert around.max() > 0.049
    assert model.values_s == pytest.approx([0.05, 0.25])
    assert Trembling(Fixed(0.01), 0.05).episode(np.random.default_rng(0))(100).min() == 0.0


def test_a_body_that_is_not_remembered_says_so():
    import gymnasium

    body = GymBody(gymnasium.make("CartPole-v1"), 0.02)
    robot = ClockedRobot(body, VirtualClock())
    robot.connect()
    assert robot.recall() == []
    with pytest.raises(ValueError, match="not remembered"):
        body.picture(None)
