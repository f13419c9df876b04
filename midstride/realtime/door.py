"""A robot's door: who is let in, one at a time, and what is said of those who are not."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
import stat
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from midstride.extras import needed_by
from midstride.realtime.addresses import Address

with needed_by("a robot's server"):
    from websockets.asyncio.server import ServerConnection, serve, unix_serve
    from websockets.http11 import Request as HttpRequest
    from websockets.http11 import Response

    from midstride.realtime import wire

PATIENCE_S = 2.0  # with who opens or closes
# With who does not answer pings. Its robot has stopped long before, by the watchdog: this only
# frees the place, and a machine that is too busy must not cost a client its place.
_UNANSWERED_S = 10.0
_SAID = (HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.UNAUTHORIZED, HTTPStatus.CONFLICT)


class Door:
    """Listens in a thread of its own.

    attend: is called there with the client that was let in, until it has gone
    refuse: is told of everybody else: what kind they are, and who
    """

    def __init__(
        self,
        address: Address,
        token: str,
        attend: Callable[[ServerConnection], Awaitable[None]],
        refuse: Callable[[str, str], None],
    ) -> None:
        self.address, self._token = address, token
        self._attend, self._refuse = attend, refuse
        self._client: ServerConnection | None = None
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._listen, name="listener", daemon=True)

    @property
    def has_client(self) -> bool:
        return self._client is not None

    def open(self) -> None:
        """Listen; an error if the address is taken."""
        if self.address.path:
            _sweep(self.address.path)
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            raise ValueError(f"{self.address} cannot be served: {self._failed}") from None

    def close(self) -> None:
        """Nobody is listened to any more."""
        if self._loop is not None and self._done is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._done.set)
        if self._thread.ident is not None:
            self._thread.join(timeout=2 * PATIENCE_S)
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
            "open_timeout": PATIENCE_S, "close_timeout": PATIENCE_S,
            "ping_interval": PATIENCE_S, "ping_timeout": _UNANSWERED_S,
            "max_size": wire.LARGEST_REQUEST, "max_queue": 8, "server_header": None,
            "logger": _quiet(), "create_connection": self._connection,
        }  # fmt: skip
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        if self.address.path:
            before = os.umask(0o177)  # nobody else's
            try:
                server = await unix_serve(self._enter, self.address.path, **options)
            finally:
                os.umask(before)
        else:
            server = await serve(self._enter, self.address.host, self.address.port, **options)
            port = next(iter(server.sockets)).getsockname()[1]
            self.address = self.address._replace(port=port)
        async with server:
            self._ready.set()
            await self._done.wait()

    def _connection(self, *args: Any, **options: Any) -> ServerConnection:
        return _Caller(self._refuse, *args, **options)

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

    async def _enter(self, connection: ServerConnection) -> None:
        if self._client is not None:  # two that were admitted at once
            self._refuse("second clients", "a second client")
            return
        self._client = connection
        try:
            await self._attend(connection)
        finally:
            self._client = None


class _Caller(ServerConnection):
    """A connection that tells if it was never let in, and nobody has told of it."""

    def __init__(self, refuse: Callable[[str, str], None], *args: Any, **options: Any) -> None:
        self._refuse = refuse
        super().__init__(*args, **options)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.response is None:
            self._refuse("no requests", "a connection that asked for nothing, or for nonsense")
        elif self.response.status_code not in _SAID:
            status = self.response.status_code
            self._refuse("strange requests", f"a browser, or who speaks otherwise (HTTP {status})")


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


def _quiet() -> logging.Logger:
    """What the library would log of strangers goes nowhere: we log it ourselves."""
    logger = logging.getLogger("midstride.realtime.door")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
