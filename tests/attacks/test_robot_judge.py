"""The judge of a robot's record finds what is wrong in it."""

import csv

import pytest

from attacks.robot_judge import judge
from midstride.realtime.bodies import TaskBody
from midstride.realtime.clock import VirtualClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.robot import Stamp


@pytest.fixture(scope="module")
def rows():
    """Of a robot whose policy dies in full motion."""
    clock, ticks = VirtualClock(), []
    robot = ClockedRobot(TaskBody("cartpole"), clock, 0.1, limited=True, on_tick=ticks.append)
    robot.connect()
    clock.sleep_until(0.05)
    robot.arm()
    for number in range(3):
        robot.send_action([1.0], Stamp(number, clock.now_s()))
        clock.sleep_until(clock.now_s() + 0.05)
    clock.sleep_until(1.0)
    robot.get_observation()
    return [
        [t.at_s, t.number, t.state, t.place[0], t.velocity[0], t.acceleration[0]] for t in ticks
    ]


def judged(tmp_path, rows, spans=()):
    names = ["at_s", "decision", "state", "place", "velocity", "acceleration"]
    with (tmp_path / "ticks.csv").open("w") as file:
        csv.writer(file).writerows([names, *rows])
    return judge(tmp_path / "ticks.csv", 0.1, spans)


def test_a_stop_as_it_should_be(tmp_path, rows):
    found = judged(tmp_path, rows)
    assert (found["outside limits"], found["moved too late"], found["stops"]) == (0, 0, 1)
    assert found["stop error m"] < 1e-9
    assert found["seconds of motion"] > 0


def test_a_fault_without_a_stop_is_counted(tmp_path, rows):
    """The stop is at 0.25 s: 0.1 s after the last command; the second fault stops nothing."""
    assert judged(tmp_path, rows, [(0.1, 0.3)])["faults without a stop"] == 0
    assert judged(tmp_path, rows, [(0.1, 0.3), (0.4, 0.8)])["faults without a stop"] == 1


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [(3, 1.9, "outside limits"), (4, 13.0, "outside limits"), (5, 401.0, "outside limits"),
     (3, 0.5, "moved too late")],
)  # fmt: skip
def test_what_is_wrong_is_counted(tmp_path, rows, column, value, kind):
    """Far behind the stop: a place, a velocity, an acceleration, a jerk that should not be."""
    wrong = [list(row) for row in rows]
    wrong[150][column] = value
    assert judged(tmp_path, wrong)[kind] > 0


def test_a_jerk_is_counted(tmp_path, rows):
    """From one side to the other within a tick, each within the limit of acceleration."""
    wrong = [list(row) for row in rows]
    wrong[150][5], wrong[151][5] = -300.0, 300.0
    assert judged(tmp_path, wrong)["outside limits"] == 1


def test_a_stop_that_is_too_long_is_measured(tmp_path, rows):
    wrong = [list(row) for row in rows]
    for row in wrong:
        if row[2] == "stopped":
            row[3] += 0.003
    assert judged(tmp_path, wrong)["stop error m"] == pytest.approx(0.003, abs=1e-6)
