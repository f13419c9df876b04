"""A robot in a process of its own: physics paced by the clock, one client, and nobody else.

The robot's thread moves it, tick by tick, whether anybody is connected or not; it asks the watchdog
itself. Another thread listens (`door.py`). A stranger without the token, a second client, a
browser, garbage, too much or too often: all are refused, logged, and change nothing. A client that
has the token and sends garbage, or is gone, is a fault: the robot stops. It also stops, along its
limits, before its process ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from midstride.extras import needed_by
from midstride.realtime.addresses import Address, new_token, parse_address, write_token
from midstride.realtime.bodies import Body
from midstride.realtime.clock import Clock, WallClock, steady
from midstride.realtime.clocked import ClockedRobot, Tick
from midstride.realtime.limiter import stop_path
from midstride.realtime.log import Log
from midstride.realtime.robot import STAY, Stamp
from midstride.seconds import format_s

with needed_by("a robot's server"):
    from websockets.asyncio.server import ServerConnection
    from websockets.exceptions import ConnectionClosed

    from midstride.realtime import wire
    from midstride.realtime.door import Door

_SILENCE_S = 30.0  # after which a client loses its place
_SPARE_S = 0.5  # for a last stop, beyond the time that limits allow for
_AGAIN_S = 0.02  # after which actuators that failed are told again
LOUDEST_PER_S = 4000  # requests


class RobotServer:
    """Serves a robot until it is closed. `run` moves it, in the thread that calls it."""

    def __init__(
        self,
        robot: ClockedRobot,
        address: Address,
        token: str,
        clock: Clock,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._robot, self._clock = robot, clock
        self._log = Log(log, clock)
        self._lock = threading.Lock()  # around the robot
        self._closing = threading.Event()
        self._late = 0  # ticks since it was armed that nobody came for in time
        self.counts: Counter[str] = Counter()  # of who was refused
        self.door = Door(address, token, self._attend, self._refuse)
        robot.watchdog.on_fault = lambda fault: self._log(f"fault: {fault}", matters=True)

    @property
    def address(self) -> Address:
        return self.door.address

    # --- The robot's thread

    def open(self) -> None:
        """Connect the robot and listen; an error if the address is taken."""
        self._robot.connect()
        self.door.open()

    def run(self) -> None:
        """Move the robot, tick by tick, until it is closed."""
        while not self._closing.is_set():
            self._clock.sleep_until(self._robot.next_tick_s(), self._closing)
            with self._lock:
                self._catch_up()

    def bring_to_rest(self) -> None:
        """Brake if it moves, as for a fault; nobody can arm it any more.

        Actuators that fail are told again, until the stop would be over.
        """
        self._closing.set()
        with self._lock:
            self._robot.resume()
            self._robot.watchdog.trip("its process ends")
        limits, give_up_s = self._robot.declared.limits, self._clock.now_s() + _SPARE_S
        if limits is not None:
            give_up_s += float(stop_path(limits, limits.velocity, limits.acceleration)[1].max())
        while self._robot.watchdog.state == "stopping" and self._clock.now_s() < give_up_s:
            self._clock.sleep_until(self._robot.next_tick_s())
            try:
                with self._lock:
                    self._robot.catch_up()
            except Exception as error:
                self._log(f"its actuators fail: {error}")
                self._clock.sleep_until(self._clock.now_s() + _AGAIN_S)

    def close(self) -> None:
        """Nobody is listened to any more."""
        self._closing.set()
        self.door.close()
        self._log.close()

    def _catch_up(self) -> None:
        self._late += max(0, self._robot.catch_up() - 1)

    # --- The listener's thread

    async def _attend(self, connection: ServerConnection) -> None:
        """A client, from hello to its end, whatever that is."""
        self._log("a client came")
        gone, is_garbage = "its client is gone", False
        try:
            await self._talk(connection)
        except wire.Garbage as error:
            gone, is_garbage = f"its client sent garbage ({error})", True
        except TimeoutError:
            gone = "its client is silent"
        except ConnectionClosed:
            pass
        finally:  # the robot first: who is gone may take its time to close
            with self._lock:
                self._robot.watchdog.trip(gone)
                self._robot.resume()
            self._log(gone)
        if is_garbage:
            self._refuse("garbage", gone)
            with suppress(Exception):
                await connection.close(1008, "garbage")

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
                raise wire.Garbage("it did not say hello in this version")
            with self._lock:
                reply = self._answer(request)
            greeted = greeted or isinstance(reply, wire.Welcome)
            await connection.send(wire.encode(reply))

    def _answer(self, request: wire.Request) -> wire.Reply:
        """What is asked for is done, or refused; whatever else goes wrong is the robot's fault."""
        if self._closing.is_set():
            return wire.Refused("the robot's process ends")
        try:
            self._catch_up()
            return self._done(request)
        except ValueError as error:
            return wire.Refused(str(error))
        except Exception as error:  # a bus that cannot be read, say
            fault = f"{type(error).__name__}: {error}"
            self._robot.watchdog.trip(fault)
            self._log(f"failed: {fault}", matters=True)
            return wire.Refused(fault)

    def _done(self, request: wire.Request) -> wire.Reply:
        robot = self._robot
        match request:
            case wire.Observe():
                return wire.observed(replace(robot.get_observation(), late_ticks=self._late))
            case wire.Act(number, captured_s, action):
                return wire.taken(robot.send_action(action, Stamp(number, captured_s)))
            case wire.Stay(number, captured_s):
                return wire.taken(robot.send_action(STAY, Stamp(number, captured_s)))
            case wire.Order(word):
                self._obey(word)
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
                raise ValueError(
                    f"the robot speaks version {wire.VERSION}, the client version {version}: "
                    "install the same midstride on both sides"
                )
        return wire.welcome(robot.declared, self._clock.now_s())

    def _obey(self, word: str) -> None:
        robot = self._robot
        {"arm": robot.arm, "stop": robot.stop, "pause": robot.pause, "resume": robot.resume}[word]()
        if word == "arm":
            self._late = 0
        if word in ("arm", "stop"):
            self._log(f"told to {word}; score {robot.score():.1f}")

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
    clock, word = WallClock(), new_token()
    robot = ClockedRobot(body, clock, watchdog_s, limited=True, seed=seed, on_tick=on_tick)
    server = RobotServer(robot, parse_address(address), word, clock, log)
    server.open()
    try:
        write_token(token, word)  # not before: the place may be another robot's
        name, waits = body.declared.name, format_s(watchdog_s)
        log(f"{name} at {server.address}, watchdog {waits}, token in {token}")
        with steady():
            server.run()
    finally:
        try:
            server.bring_to_rest()
        finally:
            server.close()
            token.unlink(missing_ok=True)
            body.close()
