"""A robot that is served by another process of this machine."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from midstride.extras import needed_by
from midstride.realtime import addresses
from midstride.realtime.clock import Clock, WallClock
from midstride.realtime.recording import Moment
from midstride.realtime.robot import STAY, Declared, Observation, RobotFault, Sent, Stamp

if TYPE_CHECKING:
    from midstride.sim.camera import Image


with needed_by("a robot's client"):
    from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
    from websockets.sync.client import ClientConnection, connect, unix_connect

    from midstride.realtime import wire

_ANSWER_S = 2.0  # that a robot may take
_SAME_S = 1e-3  # by which two readings of one clock may seem out of order


class RemoteRobot:
    """The robot behind an address. Both sides must read one clock, which is looked at first."""

    def __init__(self, address: str, token: str, clock: Clock | None = None) -> None:
        self._address, self._token = addresses.parse_address(address), token
        self._clock = WallClock() if clock is None else clock
        self._stack = ExitStack()  # closes the connection
        self._connection: ClientConnection | None = None
        self._declared: Declared | None = None

    @property
    def declared(self) -> Declared:
        if self._declared is None:
            raise RobotFault("the robot says what it is when it is connected: connect first")
        return self._declared

    def connect(self) -> None:
        address = self._address
        options: dict[str, Any] = {
            "additional_headers": {"Authorization": f"Bearer {self._token}"},
            "open_timeout": _ANSWER_S, "close_timeout": _ANSWER_S, "compression": None,
            "max_size": wire.LARGEST_REPLY, "proxy": None,
        }  # fmt: skip
        try:
            opened = (
                unix_connect(address.path, **options)
                if address.path
                else connect(str(address), **options)
            )
            self._connection = self._stack.enter_context(opened)
        except InvalidStatus as error:
            said = {401: "the token is wrong", 409: "it has a client already"}
            why = said.get(error.response.status_code, str(error))
            raise RobotFault(f"the robot at {address} refuses: {why}") from None
        except (OSError, TimeoutError, InvalidHandshake) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise RobotFault(
                f"no robot answers at {address} ({why}): start one with midstride robot"
            ) from None
        try:
            self._greet()
        except BaseException:  # or it would keep the robot's one place
            self.disconnect()
            raise

    def _greet(self) -> None:
        asked_s = self._clock.now_s()
        reply = self._ask(wire.Hello(wire.VERSION))
        if not isinstance(reply, wire.Welcome):
            raise RobotFault(f"the robot did not say what it is: {reply}")
        heard_s = self._clock.now_s()
        if not asked_s - _SAME_S <= reply.now_s <= heard_s + _SAME_S:
            raise RobotFault(
                f"the robot's clock is {abs(reply.now_s - heard_s):.3g} s away from this one: "
                "captures could not be told in time; run both on one machine"
            )
        self._declared = wire.declared_by(reply)

    def arm(self) -> None:
        self._order("arm")

    def reset(self, seed: int | None) -> None:
        """A new episode of a simulated robot, which must not be armed."""
        self._ask(wire.Reset(seed))

    def get_observation(self) -> Observation:
        reply = self._ask(wire.Observe())
        if not isinstance(reply, wire.Observed):
            raise RobotFault(f"the robot did not say what it observes: {reply}")
        return wire.observation_of(reply, self.declared)

    def send_action(self, action: Any, stamp: Stamp) -> Sent:
        captured_s = stamp.captured_s if np.isfinite(stamp.captured_s) else 0.0
        numbers: int | list[float] | None = None
        request: wire.Request = wire.Stay(stamp.number, captured_s)
        if action is not STAY and stamp.number >= 0:
            told = np.asarray(action)
            whole = told.ndim == 0 and told.dtype.kind in "iu"
            numbers = int(told) if whole else told.astype(float).tolist()
            request = wire.Act(stamp.number, captured_s, numbers)
        reply = self._ask(request)
        if not isinstance(reply, wire.Taken):
            raise RobotFault(f"the robot did not say what it took: {reply}")
        if numbers is not None and reply.action == numbers:
            return Sent(action, reply.taken_s, reply.refused)
        sent = np.array(reply.action, np.float32) if isinstance(reply.action, list) else None
        return Sent(sent if sent is not None else reply.action, reply.taken_s, reply.refused)

    def stop(self) -> None:
        self._order("stop")

    def pause(self) -> None:
        self._order("pause")

    def resume(self) -> None:
        self._order("resume")

    def is_at_rest(self) -> bool:
        reply = self._ask(wire.Resting())
        if not isinstance(reply, wire.Rested):
            raise RobotFault(f"the robot did not say whether it has arrived: {reply}")
        return reply.rests

    def recall(self) -> list[Moment]:
        found: list[Moment] = []
        while True:
            reply = self._ask(wire.Recall(len(found)))
            if not isinstance(reply, wire.Recalled):
                raise RobotFault(f"the robot did not say what it did: {reply}")
            found += wire.moments_of(reply)
            if len(found) >= reply.count or not reply.moments:
                return found

    def picture(self, index: int) -> Image:
        reply = self._ask(wire.Draw(index))
        if not isinstance(reply, wire.Drawn):
            raise RobotFault(f"the robot did not draw itself: {reply}")
        return wire.image_of(reply)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection = None
            with suppress(WebSocketException, OSError):
                self._stack.close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.disconnect()

    def _order(self, word: str) -> None:
        self._ask(wire.Order(word))

    def _ask(self, request: wire.Request) -> wire.Reply:
        if self._connection is None:
            raise RobotFault("the robot is not connected: connect first")
        try:
            self._connection.send(wire.encode(request))
            reply = wire.read_reply(self._connection.recv(timeout=_ANSWER_S, decode=False))
        # What comes later would answer the next question: such a connection is of no use any more,
        # and to lose its client is a fault to the robot.
        except TimeoutError:
            self.disconnect()
            raise RobotFault(f"the robot did not answer within {_ANSWER_S:g} s") from None
        except wire.Garbage as error:
            self.disconnect()
            raise RobotFault(f"the robot answered with garbage: {error}") from None
        except (WebSocketException, OSError) as error:
            self.disconnect()
            raise RobotFault(f"the connection to the robot broke: {error}") from None
        if isinstance(reply, wire.Refused):
            raise RobotFault(f"the robot refuses: {reply.why}")
        return reply
