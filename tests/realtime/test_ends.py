"""What ends badly: processes, connections, policies, buses. The robot brakes, and it is said."""

import asyncio
import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from midstride.cli import run as cli
from midstride.policies import as_policy
from midstride.realtime import addresses, remote, wire
from midstride.realtime.bodies import TaskBody
from midstride.realtime.clock import VirtualClock, WallClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.drive import drive, plan_of
from midstride.realtime.remote import RemoteRobot
from midstride.realtime.robot import RobotFault, Stamp
from midstride.realtime.runtime import Pace, Runtime
from midstride.realtime.senses import Senses
from midstride.realtime.server import RobotServer, serve_body
from midstride.realtime.thinker import Thought
from tests.realtime.test_drive import QUIET, options, push
from tests.realtime.test_drive import token as token  # a fixture
from tests.realtime.test_lerobot import JOINTS, TICK_S, served_arm, ticks
from tests.realtime.test_server import TOKEN, is_free, said, served, wait_for


def server_of(robot, clock):
    server = RobotServer(robot, addresses.parse_address("unix:never"), TOKEN, clock)
    server._log.close()
    server.lines = []
    server._log = lambda line, matters=False: server.lines.append(line)
    return server


def moving_arm():
    """At full speed."""
    clock, arm, robot = served_arm(watchdog_s=5.0)
    robot.arm()
    robot.send_action([90.0, -90.0], Stamp(0, clock.now_s()))
    ticks(clock, robot, 30)
    assert robot.limiter.velocity.tolist() == [50, -50]
    return clock, arm, robot


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_before_its_process_ends_an_arm_that_moves_is_braked(failures):
    """Also where its bus fails some times."""
    clock, arm, robot = moving_arm()
    server, sends, left = server_of(robot, clock), arm.send_action, iter(range(failures))

    def send(action):
        if next(left, None) is not None:
            raise ConnectionError("no status packet")
        return sends(action)

    arm.send_action = send
    count = len(arm.told)
    server.bring_to_rest()
    assert robot.watchdog.state == "stopped"
    assert robot.watchdog.fault == "its process ends"
    path = np.array([[told[name] for name in JOINTS] for told in arm.told[count - 1 :]])
    speeds = np.abs(np.diff(path, axis=0)) / TICK_S
    assert speeds[-1].max() < 10  # of 50; at 200 per second squared a tick takes 4 of it
    assert (np.diff(speeds[failures:], axis=0) <= 1e-6).all()
    assert server.lines.count("its actuators fail: no status packet") == failures
    assert "process ends" in server._answer(wire.Order("arm")).why


def test_a_bus_that_fails_for_good_does_not_keep_the_process():
    clock, arm, robot = moving_arm()

    def send(action):
        raise ConnectionError("no status packet")

    arm.send_action = send
    server_of(robot, clock).bring_to_rest()  # it comes back
    assert clock.now_s() < 3


def test_a_signal_brakes_what_is_served(tmp_path):
    """The client moves it; then the process is told to end, in the middle of a tick."""
    record, moves = [], threading.Event()

    def on_tick(tick):
        record.append(tick)
        if moves.is_set() and tick.state == "armed":
            raise KeyboardInterrupt

    def client():
        wait_for((tmp_path / "token").exists)
        word = addresses.read_token(tmp_path / "token")
        robot = RemoteRobot(f"unix:{tmp_path}/robot", word)
        robot.connect()
        robot.arm()
        robot.send_action([1.0], Stamp(0, robot.get_observation().captured_s))
        wait_for(lambda: np.abs(record[-1].velocity).max() > 0.5)
        moves.set()

    thread = threading.Thread(target=client)
    thread.start()
    asked = f"unix:{tmp_path}/robot", tmp_path / "token", 5.0
    with pytest.raises(KeyboardInterrupt):
        serve_body(TaskBody("cartpole"), *asked, lambda line: None, 0, on_tick)
    thread.join()
    assert record[-1].state == "stopped"
    assert (record[-1].velocity == 0).all()
    assert not list(tmp_path.iterdir())


class Garbler:
    """A client that arms the robot, sends garbage, and does not answer when it is sent away."""

    def __init__(self, watchdog):
        orders = wire.Hello(wire.VERSION), wire.Order("arm")
        self.says, self.watchdog, self.found = [*map(wire.encode, orders), b"junk"], watchdog, None

    async def recv(self):
        return self.says.pop(0)

    async def send(self, data):
        assert isinstance(wire.read_reply(data), wire.Welcome | wire.Done)

    async def close(self, code, reason):
        self.found = self.watchdog.state


def test_the_robot_stops_before_who_sent_garbage_is_sent_away():
    clock = VirtualClock()
    robot = ClockedRobot(TaskBody("cartpole"), clock, 0.2, limited=True)
    robot.connect()
    server, client = server_of(robot, clock), Garbler(robot.watchdog)
    asyncio.run(server._attend(client))
    assert client.found == "stopping"
    assert server.counts["garbage"] == 1
    assert any(line.startswith("fault: its client sent garbage") for line in server.lines)


def test_what_a_robot_cannot_do_is_a_fault_that_is_told_and_logged():
    clock, arm, robot = moving_arm()
    server = server_of(robot, clock)

    def fails():
        raise ConnectionError("no status packet")

    arm.get_observation = fails
    assert server._answer(wire.Observe()).why == "ConnectionError: no status packet"
    assert robot.watchdog.fault == "ConnectionError: no status packet"
    assert "fault: ConnectionError: no status packet" in server.lines


def test_faults_are_logged_with_the_time():
    with served() as server, RemoteRobot(str(server.address), TOKEN) as robot:
        robot.arm()
        robot.send_action([np.nan], Stamp(0, robot.get_observation().captured_s))
        said(server, "fault: an action must be of Box")
    with served(watchdog_s=0.05) as server, RemoteRobot(str(server.address), TOKEN) as robot:
        robot.arm()
        said(server, "fault: no fresh command came for 50 ms")
    assert all(float(line.split(" s: ")[0]) > 0 for line in server.lines)


# --- Connections ---------------------------------------------------------------------------------


def test_after_an_answer_that_did_not_come_there_is_no_connection(monkeypatch):
    """Or the answer to one question would be taken for that to the next."""
    with served() as server:
        robot = RemoteRobot(str(server.address), TOKEN)
        robot.connect()
        robot.arm()
        monkeypatch.setattr(remote, "_ANSWER_S", 0.05)
        with server._lock, pytest.raises(RobotFault, match="did not answer"):
            robot.get_observation()
        with pytest.raises(RobotFault, match="not connected"):
            robot.arm()
        wait_for(lambda: is_free(server))
        assert server.robot.watchdog.fault == "its client is gone"


class Ahead(WallClock):
    """Another machine's clock."""

    def now_s(self):
        return super().now_s() + 50

    def sleep_until(self, instant_s, wake=None):
        super().sleep_until(instant_s - 50, wake)


def test_two_clocks_are_refused_and_the_place_is_free_again():
    with served(clock=Ahead()) as server:
        for _ in range(2):
            wait_for(lambda: is_free(server))
            with pytest.raises(RobotFault, match="clock is 50 s away from this one"):
                RemoteRobot(str(server.address), TOKEN).connect()
        wait_for(lambda: is_free(server))


# --- Policies ------------------------------------------------------------------------------------


class Hanging:
    """A thinker that never comes to an end, from the second thought on."""

    def __init__(self, clock):
        self.wake, self._clock, self._first = threading.Event(), clock, []

    def warm_up(self, row):
        pass

    def think(self, number, captured_s, row):
        if number == 0:
            action = np.zeros(1, np.float32)
            self._first = [Thought(0, (action,), captured_s, captured_s, captured_s)]

    def is_free(self):
        return False

    def collect(self):
        found, self._first = self._first, []
        return found

    def close(self):
        pass


@pytest.mark.parametrize("mode", ["concurrent", "hold"])
def test_a_policy_that_hangs_ends_the_run_once_the_robot_has_stopped(mode):
    clock = VirtualClock()
    robot = ClockedRobot(TaskBody("cartpole"), clock, 0.2, limited=True)
    robot.connect()
    plan = plan_of(robot.declared, None, mode, 0.05)
    run = drive(
        robot, as_policy(push), plan, clock, lambda run: True, thinks=lambda p: Hanging(clock)
    )
    assert "no fresh command came for 200 ms" in run.ended
    assert clock.now_s() < 1
    assert 0.2 < run.longest_silence_s() < 1


def test_a_policy_that_hangs_on_a_robot_without_a_watchdog_ends_when_it_was_to():
    clock = VirtualClock()
    robot = ClockedRobot(TaskBody("cartpole"), clock)
    robot.connect()
    plan = plan_of(robot.declared, None, "blocking", 0.05)
    asked = []

    def goes_on(run):
        asked.append(run.lasted_s)
        return run.lasted_s < 3

    run = drive(robot, as_policy(push), plan, clock, goes_on, thinks=lambda p: Hanging(clock))
    assert run.ended == ""
    assert 3 <= run.lasted_s < 5
    assert robot._paused_s is None  # its world goes on


def test_after_a_fault_drive_does_not_arm_by_itself():
    clock = VirtualClock()
    robot = ClockedRobot(TaskBody("cartpole"), clock, 0.2, limited=True)
    robot.connect()
    robot.arm()
    clock.sleep_until(1.0)
    plan = plan_of(robot.declared, None, "concurrent", 0.05)
    asked = robot, as_policy(push), plan, clock, lambda run: run.captures < 3
    thinks = {"thinks": lambda policy: Hanging(clock)}
    with pytest.raises(ValueError, match=r"stopped after a fault: no fresh command.*arm_after_"):
        drive(*asked, **thinks)
    assert robot.watchdog.state == "stopped"
    drive(*asked, **thinks, arm_after_fault=True)
    assert robot.watchdog.faults == 2


def test_a_thought_that_was_overtaken_is_not_what_was_decided_last():
    """Two workers: the second thought is done first."""

    class Swapped(Hanging):
        def __init__(self, clock):
            super().__init__(clock)
            self.given = []

        def think(self, number, captured_s, row):
            action = np.array([0.1 * (number + 1)], np.float32)
            self.given.append(Thought(number, (action,), captured_s, captured_s, captured_s))
            if number % 2:
                self._first = self.given[::-1]
                self.given = []

        def is_free(self):
            return True

    clock = VirtualClock()
    robot = ClockedRobot(TaskBody("cartpole"), clock)
    robot.connect()
    senses = Senses(robot.declared, stack_actions=1)
    runtime = Runtime(robot, Swapped(clock), senses, Pace(period_s=0.05), clock)
    rows = [cycle.row for cycle, _ in zip(runtime.cycles(), range(3), strict=False)]
    assert rows[2][-1] == pytest.approx(0.2)


def test_in_the_mode_rest_the_watchdog_must_wait_for_a_motion_and_a_thought():
    declared = ClockedRobot(TaskBody("cartpole"), VirtualClock(), 0.25, limited=True).declared
    declared = replace(declared, arrives_s=1.1)
    with pytest.raises(ValueError, match=r"can take 1\.1 s: serve it with a longer --watchdog$"):
        plan_of(declared, None, "rest")
    patient = replace(declared, watchdog_s=1.2)
    assert plan_of(patient, None, "rest").pace.mode == "rest"
    with pytest.raises(ValueError, match="a thought and the period after it last 300 ms"):
        plan_of(replace(declared, watchdog_s=0.3), None, "hold", 0.3)


_calls = iter(range(20))


def fails_later(row):
    if next(_calls, None) is None:
        raise ArithmeticError("no such weather")
    return push(row)


def test_a_policy_that_fails_leaves_its_log(token, tmp_path):
    with served() as server:
        asked = options(cli.Options, server, token, tmp_path, seconds=60.0)
        asked = replace(asked, policy="tests.realtime.test_ends:fails_later")
        with pytest.raises(ArithmeticError, match="no such weather"):
            cli.run(asked, QUIET)
    record = json.loads((tmp_path / "out/run.json").read_text())
    assert record["ended"] == "ArithmeticError: no such weather"
    assert record["counts"]["in force"] > 5
    assert (tmp_path / "out/decisions.csv").read_text().count("\n") > 5
