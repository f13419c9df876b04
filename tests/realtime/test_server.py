"""A robot in a thread, over loopback: a client that behaves, and everybody else."""

import itertools
import os
import random
import socket
import threading
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect, unix_connect

from attacks.robot_messages import garbage
from midstride.realtime import addresses, door, wire
from midstride.realtime.bodies import TaskBody
from midstride.realtime.clock import WallClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.remote import RemoteRobot
from midstride.realtime.robot import RobotFault, Stamp
from midstride.realtime.server import RobotServer

TOKEN = "a" * 43


@contextmanager
def served(address="ws://127.0.0.1:0", watchdog_s=5.0, actions=None, body=None, clock=None):
    lines = []
    clock = clock or WallClock()
    body = body or TaskBody("cartpole", actions)
    limited = body.declared.limits is not None
    robot = ClockedRobot(body, clock, watchdog_s, limited=limited, seed=0)
    server = RobotServer(robot, addresses.parse_address(address), TOKEN, clock, lines.append)
    server.open()
    server.lines, server.robot = lines, robot
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
        assert thread.is_alive()  # whatever was done to it
    finally:
        server.close()
        thread.join()


def wait_for(condition):
    """For what another thread is about to do; bounded by tries, not by a clock."""
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not come")


def said(server, line):
    """For a line of the log, which begins with the time."""
    wait_for(lambda: any(found.split(" s: ", 1)[1].startswith(line) for found in server.lines))


def is_free(server):
    return not server.door.has_client and server.robot.watchdog.state != "stopping"


def dial(server, token=TOKEN, **options):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return connect(str(server.address), additional_headers=headers, proxy=None, **options)


def test_a_client_sees_moves_and_stops_the_robot():
    with served() as server, RemoteRobot(str(server.address), TOKEN) as robot:
        assert robot.declared.name == "cartpole"
        assert robot.declared.columns == server.robot.declared.columns
        limits = robot.declared.limits
        assert (limits.high, limits.jerk) == (1.8, 8e4)
        first = robot.get_observation()
        assert first.values in robot.declared.observation_space
        assert (first.state, first.fault) == ("idle", None)
        assert robot.send_action([1.0], Stamp(0, first.captured_s)).refused == "it is idle"
        robot.arm()
        seen = robot.get_observation()
        sent = robot.send_action([0.5], Stamp(0, seen.captured_s))
        assert sent.refused is None
        assert sent.taken_s >= seen.captured_s
        target = robot.get_observation().target
        assert target == pytest.approx(seen.position + 0.1, abs=0.01)
        clipped = robot.send_action([7.0], Stamp(1, seen.captured_s))
        assert clipped.action.tolist() == [1.0]
        robot.stop()
        wait_for(lambda: robot.get_observation().state == "stopped")
        robot.reset(seed=3)
        again = robot.get_observation()
        robot.reset(seed=3)
        assert robot.get_observation().position == pytest.approx(again.position, abs=1e-3)


def test_choices_go_over_the_wire_too():
    with served(actions=5) as server, RemoteRobot(str(server.address), TOKEN) as robot:
        assert robot.declared.action_space.n == 5
        robot.arm()
        sent = robot.send_action(4, Stamp(0, robot.get_observation().captured_s))
        assert (sent.action, sent.refused) == (4, None)
        assert "an action must be of Discrete(5)" in robot.send_action(5, Stamp(1)).refused
        assert robot.get_observation().state != "armed"


def test_a_unix_socket_is_for_its_owner_alone(tmp_path):
    address = f"unix:{tmp_path}/robot"
    with served(address) as server:
        assert os.stat(tmp_path / "robot").st_mode & 0o777 == 0o600
        with RemoteRobot(address, TOKEN) as robot:
            assert robot.declared.name == "cartpole"
        with pytest.raises(ValueError, match=r"served at unix:.* already"), served(address):
            pass
        with pytest.raises(InvalidStatus):
            unix_connect(server.address.path)
    assert not (tmp_path / "robot").exists()
    (tmp_path / "robot").write_text("mine")
    with pytest.raises(ValueError, match="is no socket"), served(address):
        pass


def test_the_robot_stops_when_its_client_is_gone():
    with served() as server:
        robot = RemoteRobot(str(server.address), TOKEN)
        robot.connect()
        robot.arm()
        robot._connection.socket.shutdown(socket.SHUT_RDWR)  # as a kill or a cable does
        wait_for(lambda: server.robot.watchdog.state == "stopped")
        assert server.robot.watchdog.fault == "its client is gone"
        with RemoteRobot(str(server.address), TOKEN) as other:
            assert other.get_observation().fault == "its client is gone"
            assert "is stopped" in other.send_action([0.1], Stamp(0)).refused


def test_the_watchdog_needs_no_client():
    """A client that is connected and silent: the robot's own process stops it."""
    with served(watchdog_s=0.05) as server, RemoteRobot(str(server.address), TOKEN) as robot:
        robot.arm()
        wait_for(lambda: server.robot.watchdog.state == "stopped")
        assert robot.get_observation().fault == "no fresh command came for 50 ms"


@pytest.mark.parametrize("token", ["", "wrong", "a" * 42, "é"])
def test_strangers_are_refused_and_logged(token):
    with served() as server:
        with pytest.raises((InvalidStatus, UnicodeError)):
            dial(server, token)
        if token != "é":
            assert server.counts["strangers"] == 1
            said(server, "refused: a stranger without the token")
            with pytest.raises(RobotFault, match="refuses: the token is wrong"):
                RemoteRobot(str(server.address), token or "none").connect()


def test_there_is_one_client_and_no_browser():
    with served() as server, RemoteRobot(str(server.address), TOKEN) as robot:
        robot.arm()
        with pytest.raises(RobotFault, match="it has a client already"):
            RemoteRobot(str(server.address), TOKEN).connect()
        assert robot.get_observation().state == "armed"  # which does not disturb the first
        robot.disconnect()
        wait_for(lambda: not server.door.has_client)
        with pytest.raises(InvalidStatus):
            dial(server, origin="http://127.0.0.1")
        said(server, "refused: a browser, or who speaks otherwise (HTTP 403)")
        assert server.counts["strange requests"] == 1


@pytest.mark.parametrize("seed", range(4))
def test_garbage_is_refused_whatever_it_is(seed):
    rng = random.Random(seed)
    for _ in range(500):
        message = garbage(rng)
        if len(message) <= wire.LARGEST_REQUEST:  # more is not even read
            with pytest.raises(wire.Garbage):
                wire.read_request(message)


def read_garbage(rng):
    """What is not too large to be read at all."""
    return next(
        message for _ in itertools.count() if len(message := garbage(rng)) < wire.LARGEST_REQUEST
    )


def test_a_client_that_sends_garbage_stops_the_robot_and_is_sent_away():
    rng = random.Random(0)
    with served() as server:
        for _ in range(12):
            wait_for(lambda: is_free(server))
            with dial(server) as client:
                client.send(wire.encode(wire.Hello(wire.VERSION)))
                client.recv(timeout=5)
                client.send(wire.encode(wire.Order("arm")))
                client.recv(timeout=5)
                client.send(read_garbage(rng))
                with pytest.raises(ConnectionClosed):
                    client.recv(timeout=5)
        wait_for(lambda: is_free(server))
        assert server.counts["garbage"] == 12
        assert server.robot.watchdog.faults == 12
        assert "its client sent garbage" in server.robot.watchdog.fault


def test_who_sends_no_request_or_nothing_is_refused_and_logged_and_disturbs_nobody(monkeypatch):
    """Among them connections that stay half open: they are given up by the server itself."""
    monkeypatch.setattr(door, "PATIENCE_S", 0.05)
    rng = random.Random(1)
    with served() as server, RemoteRobot(str(server.address), TOKEN) as robot:
        open_ = []
        for k in range(30):
            stranger = socket.create_connection((server.address.host, server.address.port))
            stranger.sendall(rng.randbytes(rng.randrange(1, 2000)) if k % 3 else b"")
            open_.append(stranger)
        assert robot.get_observation().state == "idle"
        wait_for(lambda: server.counts["no requests"] == 30)
        said(server, "refused: a connection that asked for nothing, or for nonsense")
        assert robot.get_observation().state == "idle"
        for stranger in open_:
            stranger.close()


@pytest.mark.parametrize("size", [wire.LARGEST_REQUEST + 1, 10 * wire.LARGEST_REQUEST])
def test_what_is_too_large_is_not_read(size):
    with served() as server, dial(server) as client:
        client.send(wire.encode(wire.Hello(wire.VERSION)))
        client.recv(timeout=5)
        with suppress(ConnectionClosed):  # it may be sent away before it has said all
            client.send(bytes(size))
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=5)


def test_another_version_is_told_which():
    with served() as server, dial(server) as client:
        client.send(wire.encode(wire.Hello(99)))
        reply = wire.read_reply(client.recv(timeout=5))
        assert f"speaks version {wire.VERSION}, the client version 99" in reply.why
        client.send(wire.encode(wire.Order("arm")))  # it was not greeted
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=5)
        assert server.robot.watchdog.state == "idle"


@pytest.mark.parametrize(
    "text",
    ["", "robot", "ws://0.0.0.0:80", "ws://example.com:80", "ws://127.0.0.1:99999", "unix:",
     "wss://127.0.0.1:80", "ws://127.0.0.1", "unix:/" + "x" * 200, "ws://127.0.0.1.evil.com:80"],
)  # fmt: skip
def test_addresses_are_of_this_machine(text):
    with pytest.raises(ValueError, match=r"address of a robot|path of a Unix socket"):
        addresses.parse_address(text)


def test_a_token_is_for_its_owner_and_comes_back(tmp_path):
    path = tmp_path / "robot.token"
    path.write_text("old")
    token = addresses.new_token()
    addresses.write_token(path, token)
    assert path.stat().st_mode & 0o777 == 0o600
    assert addresses.read_token(path) == token
    path.write_text("two words\n")
    with pytest.raises(ValueError, match="holds no token"):
        addresses.read_token(path)


def test_no_robot_at_an_address_is_said():
    with pytest.raises(RobotFault, match=r"no robot answers at ws://127\.0\.0\.1:9"):
        RemoteRobot("ws://127.0.0.1:9", TOKEN).connect()


def test_a_robot_of_images_comes_over_the_wire_whole():
    from gymnasium import spaces

    from midstride.realtime.robot import Declared, Observation

    rng = np.random.default_rng(0)
    space = spaces.Dict(
        {"image": spaces.Box(0, 255, (4, 5, 3), np.uint8), "state": spaces.Box(-1, 1, (2,))}
    )
    declared = Declared("seer", space, spaces.Box(-1, 1, (3,)), ("a", "b"))
    image = rng.integers(0, 255, (4, 5, 3), dtype=np.uint8)
    seen = Observation({"image": image, "state": np.array([0.25, 1.0])}, 3.5)
    there = wire.declared_by(wire.read_reply(wire.encode(wire.welcome(declared, 1.0))))
    assert there.observation_space == space
    back = wire.observation_of(wire.read_reply(wire.encode(wire.observed(seen))), there)
    assert (back.values["image"] == image).all()
    assert back.captured_s == 3.5
