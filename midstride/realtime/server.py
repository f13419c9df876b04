"""A robot in a process of its own: physics paced by the clock, one client, and nobody else.

The robot's thread moves it, tick by tick, whether anybody is connected or not; it asks the watchdog
itself. Another thread listens. A stranger without the token, a second client, a browser, garbage,
too much or too often: all are refused, logged, and change nothing. A client that has the token and
sends garbage, or is gone, is a fault: the robot stops.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import stat
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from midstride.extras import needed_by
from midstride.realtime.bodies import Body
from midstride.realtime.clock import Clock, WallClock, steady
from midstride.realtime.clocked import ClockedRobot, Tick
from midstride.realtime.robot import Stamp
from midstride.seconds import format_s

with needed_by("a robot's server"):
    from websockets.asyncio.server import ServerConnection, serve, unix_serve
    from websockets.exceptions import ConnectionClosed
    from websockets.http11 import Request as HttpRequest
    from websockets.http11 import Response

    from midstride.realtime import wire

_PATIENCE_S = 2.0  # with who opens or closes
# With who does not answer pings. Its robot has stopped long before, by the watchdog: this only
# frees the place, and a machine that is too busy must not cost a client its place.
_UNANSWERED_S = 10.0
_SILENCE_S = 30.0  # after which a client loses its place
_LINES_PER_S = 20  # of the log; what is more is counted
LOUDEST_PER_S = 4000  # requests


class RobotServer:
    """Serves a robot until it is closed. `run` moves it, in the thread that calls it."""

    def __init__(
        self,
        robot: ClockedRobot,
        address: wire.Address,
        token: str,
        clock: Clock,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._robot, self._clock, self._token = robot, clock, token
        self.address = address
        self._log = _Log(log, clock)
        self._lock = threading.Lock()  # around the robot
        self._closing = threading.Event()
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._client: Any = None
        self.counts: Counter[str] = Counter()  # what was refused, and ticks that came late
        self._thread = threading.Thread(target=self._listen, name="listener", daemon=True)

    # --- The robot's thread

    def open(self) -> None:
        """Listen; an error if the address is taken."""
        if self.address.path:
            _sweep(self.address.path)
        self._robot.connect()
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            raise ValueError(f"{self.address} cannot be served: {self._failed}") from None

    def run(self) -> None:
        """Move the robot, tick by tick, until it is closed."""
        while not self._closing.is_set():
            self._clock.sleep_until(self._robot.next_tick_s(), self._closing)
            with self._lock:
                lived = self._robot.catch_up()
            self.counts["late ticks"] += max(0, lived - 1)

    def close(self) -> None:
        """Nobody is listened to any more."""
        self._closing.set()
        if self._loop is not None and self._done is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(timeout=2 * _PATIENCE_S)
        if self.address.path:
            with suppress(FileNotFoundError):
                os.unlink(self.address.path)

    # --- The listener's thread

    def _listen(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # told by open()
            self._failed = error
        self._ready.set()

    async def _serve(self) -> None:
        options: dict[str, Any] = {
            "process_request": self._admit, "origins": [None], "compression": None,
            "open_timeout": _PATIENCE_S, "close_timeout": _PATIENCE_S,
            "ping_interval": _PATIENCE_S, "ping_timeout": _UNANSWERED_S,
            "max_size": wire.LARGEST_REQUEST, "max_queue": 8, "server_header": None,
            "logger": _quiet(),
        }  # fmt: skip
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        if self.address.path:
            before = os.umask(0o177)  # nobody else's
            try:
                server = await unix_serve(self._attend, self.address.path, **options)
            finally:
                os.umask(before)
        else:
            server = await serve(self._attend, self.address.host, self.address.port, **options)
            port = next(iter(server.sockets)).getsockname()[1]
            self.address = self.address._replace(port=port)
        async with server:
            self._ready.set()
            await self._done.wait()

    def _admit(self, connection: ServerConnection, request: HttpRequest) -> Response | None:
        """Who has the token and finds the place free."""
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            self._refuse("strangers", "a stranger without the token")
            return connection.respond(HTTPStatus.UNAUTHORIZED, "The token is wrong.\n")
        if self._client is not None:
            self._refuse("second clients", "a second client")
            return connection.respond(HTTPStatus.CONFLICT, "The robot has a client already.\n")
        return None

    async def _attend(self, connection: ServerConnection) -> None:
        """A client, from hello to its end, whatever that is."""
        if self._client is not None:  # two that were admitted at once
            self._refuse("second clients", "a second client")
            return
        self._client = connection
        self._log("a client came")
        gone = "its client is gone"
        try:
            await self._talk(connection)
        except wire.Garbage as error:
            gone = f"its client sent garbage ({error})"
            self._refuse("garbage", gone)
            with suppress(Exception):
                await connection.close(1008, "garbage")
        except TimeoutError:
            gone = "its client is silent"
        except ConnectionClosed:
            pass
        finally:
            with self._lock:
                self._robot.catch_up()
                self._robot.resume()
                self._robot.watchdog.trip(gone)
            self._client = None
            self._log(gone)

    async def _talk(self, connection: ServerConnection) -> None:
        greeted, allowed, filled_s = False, float(LOUDEST_PER_S), self._clock.now_s()
        while True:
            data = await asyncio.wait_for(connection.recv(), _SILENCE_S)
            now_s = self._clock.now_s()
            allowed = min(LOUDEST_PER_S, allowed + (now_s - filled_s) * LOUDEST_PER_S) - 1
            filled_s = now_s
            if allowed < 0:
                raise wire.Garbage(f"more than {LOUDEST_PER_S} requests in a second")
            request = wire.read_request(data)
            if not greeted and not isinstance(request, wire.Hello):
                raise wire.Garbage("it did not say hello")
            greeted = True
            with self._lock:
                reply = self._answer(request)
            await connection.send(wire.encode(reply))

    def _answer(self, request: wire.Request) -> wire.Reply:
        robot = self._robot
        try:
            match request:
                case wire.Observe():
                    return wire.observed(robot.get_observation())
                case wire.Act(number, captured_s, action):
                    return wire.taken(robot.send_action(action, Stamp(number, captured_s)))
                case wire.Order(word):
                    {
                        "arm": robot.arm, "stop": robot.stop, "pause": robot.pause,
                        "resume": robot.resume,
                    }[word]()  # fmt: skip
                    if word in ("arm", "stop"):
                        score = robot.get_observation().score
                        self._log(f"told to {word}; score {score or 0.0:.1f}")
                    return wire.Done()
                case wire.Resting():
                    return wire.Rested(robot.is_at_rest())
                case wire.Recall(first):
                    return wire.recalled(robot.recall(), first)
                case wire.Draw(index):
                    return wire.drawn(robot.picture(index))
                case wire.Reset(seed):
                    robot.reset(seed)
                    return wire.Done()
                case wire.Hello(version) if version != wire.VERSION:
                    return wire.Refused(
                        f"the robot speaks version {wire.VERSION}, the client version {version}: "
                        "install the same midstride on both sides"
                    )
            return wire.welcome(robot.declared)
        except ValueError as error:
            return wire.Refused(str(error))

    def _refuse(self, kind: str, who: str) -> None:
        self.counts[kind] += 1
        self._log(f"refused: {who}")


def serve_body(
    body: Body,
    address: str,
    token: Path,
    watchdog_s: float,
    log: Callable[[str], None] = print,
    seed: int | None = None,
    on_tick: Callable[[Tick], None] | None = None,
) -> None:
    """Serve a body until this process is told to end: watched, within limits, to one client.

    address: unix:PATH or ws://127.0.0.1:PORT
    token: file that the token is written to, for its owner alone
    on_tick: is told of every tick
    """
    clock, word = WallClock(), wire.new_token()
    robot = ClockedRobot(body, clock, watchdog_s, limited=True, seed=seed, on_tick=on_tick)
    server = RobotServer(robot, wire.parse_address(address), word, clock, log)
    server.open()
    try:
        wire.write_token(token, word)  # not before: the place may be another robot's
        name, waits = body.declared.name, format_s(watchdog_s)
        log(f"{name} at {server.address}, watchdog {waits}, token in {token}")
        with steady():
            server.run()
    finally:
        server.close()
        token.unlink(missing_ok=True)
        body.close()


class _Log:
    """Lines with the time, and not more than a person could read."""

    def __init__(self, write: Callable[[str], None], clock: Clock) -> None:
        self._write, self._clock, self._second, self._lines, self._unsaid = write, clock, 0.0, 0, 0
        self._lock = threading.Lock()

    def __call__(self, line: str) -> None:
        with self._lock:
            second = self._clock.now_s() // 1
            if second != self._second:
                if self._unsaid:
                    self._write(f"and {self._unsaid} lines more")
                self._second, self._lines, self._unsaid = second, 0, 0
            self._lines += 1
            if self._lines <= _LINES_PER_S:
                self._write(line)
            else:
                self._unsaid += 1


def _sweep(path: str) -> None:
    """Remove the socket of a server that is gone; an error if one is there, or something else."""
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise ValueError(f"{path} is there and is no socket: give another address")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
            return
    raise ValueError(f"a robot is served at unix:{path} already: give another address")


def _quiet() -> Any:
    """What libraries would log of strangers goes nowhere: we log it ourselves."""
    import logging

    logger = logging.getLogger("midstride.realtime.server")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
