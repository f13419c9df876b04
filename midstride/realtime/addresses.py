"""Where a client and a robot meet, on one machine, and the token that they share."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from midstride.disk.read import Missing, read_text

_LONGEST_PATH = 100  # letters of a Unix socket's path that all systems take


class Address(NamedTuple):
    """A Unix socket (path), or a port of this machine."""

    path: str | None
    host: str
    port: int

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"ws://{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """unix:/path/to/socket or ws://127.0.0.1:8765; nothing beyond this machine."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path or len(os.path.abspath(path)) > _LONGEST_PATH:
            raise ValueError(
                f"the path of a Unix socket must have 1 to {_LONGEST_PATH} letters, got {path!r}"
            )
        return Address(os.path.abspath(path), "", 0)
    match = re.fullmatch(r"ws://(127\.0\.0\.1|localhost|\[::1\]):(\d{1,5})/?", text)
    if match is None or not 0 <= int(match[2]) < 2**16:
        raise ValueError(
            f"{text!r} is not the address of a robot: write unix:/path/to/socket or "
            "ws://127.0.0.1:8765; robots are served on this machine alone, whose clock both sides "
            "read"
        )
    return Address(None, match[1].strip("[]"), int(match[2]))


def new_token() -> str:
    return secrets.token_urlsafe(32)


def write_token(path: Path, token: str) -> None:
    """A token in a file that nobody else can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags, 0o600)
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(handle, 0o600)  # also of a file that was there
        os.write(handle, f"{token}\n".encode())
    finally:
        os.close(handle)


def read_token(path: Path) -> str:
    try:
        found = read_text(path, 4096).strip()
    except Missing:
        raise ValueError(
            f"there is no {path}: midstride robot writes a token there while it serves; give its "
            "place, --token FILE"
        ) from None
    if not re.fullmatch(r"[A-Za-z0-9_-]{20,200}", found):
        raise ValueError(f"{path} holds no token: give the file that midstride robot wrote")
    return found
