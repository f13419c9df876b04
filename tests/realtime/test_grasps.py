"""A grasp on a robot: what is measured of it, and that it is the same each time."""

from dataclasses import replace

import numpy as np
import pytest

from midstride.latency import Fixed
from midstride.policies import as_policy
from midstride.realtime.clock import VirtualClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.drive import OVER, Run, plan_of
from midstride.realtime.grasps import completion, grasp, jerk, measured
from midstride.realtime.hand import HandBody
from midstride.realtime.journal import Decision
from midstride.realtime.recording import TURN_S, Moment
from midstride.realtime.strange import Strange
from midstride.tasks.grasp.settings import GraspSettings
from tests.realtime.test_hand import fetch

SETTINGS = GraspSettings(observation="state", scenes=4)


def moment(at_s, x, target=None, is_switch=False, number=0, score=0.0):
    place, told = (None if v is None else np.array([v, 0, 0, 0, 1.0]) for v in (x, target))
    return Moment(at_s, number, is_switch, "armed", place, told, score)


def test_completion_is_what_was_done_when_it_was_seen_again():
    """10 cm asked for, at 1 cm per 0.1 s: 3 cm at the next capture; then 5 cm back, all done."""
    moments = [moment(0.1 * k, 0.01 * k, 0.1) for k in range(1, 5)]  # on the way
    moments.insert(0, moment(0.0, 0.0, 0.1, is_switch=True))
    moments.append(moment(0.5, 0.05, 0.0, is_switch=True, number=1))
    moments += [moment(0.6, 0.02), moment(0.7, -0.02)]  # overshoot does not count
    found = completion(moments, [-0.1, 0.3, 0.7], 0.7)
    assert found == pytest.approx((0.03 + 0.05) / (0.1 + 0.05))


def test_jerk_is_the_third_derivative():
    """x = t^3 has jerk 6, whatever switches lie between."""
    times_s = TURN_S * np.arange(20)
    moments = [moment(t, t**3) for t in times_s]
    moments.insert(5, moment(times_s[4] + 0.01, 99.0, is_switch=True))
    assert jerk(moments) == pytest.approx(6.0)
    assert jerk(moments[:3]) == 0.0


def test_a_grasp_lasts_from_the_first_switch_to_its_end():
    moments = [
        moment(1.15, 0.0, 0.1, is_switch=True),
        moment(1.2, 0.1, score=0.0),
        moment(1.9, 0.1, 0.1, is_switch=True, number=1, score=1.0),
        moment(2.0, 0.1, score=0.0),  # it fell: too late to matter
    ]
    decisions = [
        Decision(k, t, t, t, taken_s=t + 0.15, fate="in force") for k, t in enumerate((1.0, 1.75))
    ]
    run = Run(decisions, ended=OVER, seen_s=2.05)
    found = measured(moments, run)
    assert (found.success, found.policy_duration_s) == (1.0, pytest.approx(0.75))
    assert found.latency_s == pytest.approx(0.15)
    cut = measured(moments, replace(run, ended=""))  # at the limit of decisions
    assert (cut.success, cut.policy_duration_s) == (0.0, pytest.approx(0.9))
    broken = measured(moments, replace(run, ended="the robot is stopped: dog"))
    assert broken.ended == "the robot is stopped: dog"
    assert not broken.success


@pytest.mark.parametrize(("mode", "period_s"), [("concurrent", 0.3), ("rest", None)])
def test_a_script_grasps_on_a_strange_body_and_again_the_same(mode, period_s):
    policy = as_policy(lambda row: fetch(np.concatenate([row, np.zeros(12)])))
    body = HandBody(SETTINGS, replace(Strange(), objects="train"))

    def once():
        clock = VirtualClock()
        robot = ClockedRobot(body, clock, 2.0, limited=True)
        robot.connect()
        plan = plan_of(robot.declared, None, mode, period_s)
        plan = replace(plan, latency=Strange().latency(Fixed(0.1)), seed=3)
        return grasp(robot, policy, plan, clock, seed=2, longest=14)

    (found, run), (again, _) = once(), once()
    assert found == again
    assert run.captures == 15
    assert found.decisions == 14
    assert 0.05 <= found.latency_s <= 0.15
    assert found.completion > (0.9 if mode == "rest" else 0.2)
    assert found.policy_duration_s > 3
