"""Messages that are none, in many ways, at a robot's server: strangers' bytes, and a client's."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import suppress

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import unix_connect

from midstride.realtime import wire

_ACT = {"type": "Act", "number": 0, "captured_s": 0.0, "action": [0.5]}
_pack = msgspec.msgpack.encode


def garbage(rng: random.Random) -> bytes | str:
    """A message that is none, in one of many ways."""
    kinds: list[Callable[[], bytes | str]] = [
        lambda: rng.randbytes(rng.randrange(0, 60)),
        lambda: _pack({**_ACT, "number": rng.choice([-1, -2, 2**53, 1.5, "0", None])}),
        lambda: _pack({**_ACT, "action": rng.choice(["left", [[0.1]], None, {}])}),
        lambda: _pack({**_ACT, "action": [0.1] * 257}),
        lambda: _pack({**_ACT, "more": 1}),
        lambda: _pack({**_ACT, "type": rng.choice(["act", "Shell", "", 7])}),
        lambda: _pack({"type": "Stay", "number": -1, "action": [0.5]}),
        lambda: _pack({"type": "Order", "word": rng.choice(["fly", "armed", ""])}),
        lambda: _pack({"type": "Draw", "index": rng.choice([-1, 2**53, 0.5, None, "0"])}),
        lambda: _pack({"type": "Recall", "first": rng.choice([-1, 2**53, [0], "0"])}),
        lambda: _pack(_ACT)[: rng.randrange(1, 30)],
        lambda: b"\x91" * rng.randrange(1, 3000),  # lists in lists
        lambda: "text",
        lambda: _pack([_ACT]),
        lambda: bytes(wire.LARGEST_REQUEST + rng.randrange(1, 100)),
        lambda: _flipped(rng),
    ]
    return rng.choice(kinds)()


def _flipped(rng: random.Random) -> bytes:
    """A command with a byte changed, where that makes it none."""
    while True:
        data = bytearray(_pack(_ACT))
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            wire.read_request(bytes(data))
        except wire.Garbage:
            return bytes(data)


def from_a_client(path: str, token: str, rng: random.Random) -> str:
    """Garbage from who has the token; what came back: closed, or what was answered."""
    headers = {"Authorization": f"Bearer {token}"}
    with unix_connect(path, additional_headers=headers, compression=None) as client:
        client.send(wire.encode(wire.Hello(wire.VERSION)))
        client.recv(timeout=10)
        try:
            client.send(garbage(rng))
            answer = client.recv(timeout=10)
        except ConnectionClosed:
            return "closed"
    return f"answered {answer!r}"


def from_a_stranger(path: str, rng: random.Random) -> str:
    """Bytes that are no handshake, or one without the token."""
    if rng.random() < 0.1:
        wrong = {"Authorization": f"Bearer {rng.randbytes(16).hex()}"}
        try:
            with unix_connect(path, additional_headers=wrong, compression=None):
                return "admitted"
        except InvalidStatus:
            return "closed"
    head = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n"
    with socket.socket(socket.AF_UNIX) as one, suppress(ConnectionError):
        one.settimeout(10)
        one.connect(path)
        one.sendall(rng.choice([b"", head]) + rng.randbytes(rng.randrange(1, 400)) + b"\r\n\r\n")
        one.shutdown(socket.SHUT_WR)
        answer = one.recv(4096)
        return "admitted" if b" 101 " in answer else "closed"
    return "closed"
