"""Zip files of strangers: members are read into memory by name, within bounds, never unpacked."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

_MIB = 2**20
LARGEST_FILE = 512 * _MIB
_LARGEST_DIRECTORY = _MIB  # bytes of the table of contents: some 10,000 members
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    UnicodeDecodeError,
    OverflowError,
)


class Archive:
    """A zip file in memory. What is wrong with it is a ValueError with one sentence."""

    def __init__(self, content: bytes) -> None:
        source = _Bounded(content)
        try:
            self._zip = zipfile.ZipFile(source)
        except _DAMAGED as error:
            raise ValueError(f"it is no readable zip file ({first_line(error)})") from None
        source.most = len(content)
        self.names = self._zip.namelist()
        if len(set(self.names)) != len(self.names):
            raise ValueError("two of its members have the same name")

    def read(self, name: str, most: int) -> bytes:
        """The content of a member, at most so many bytes, however small they were packed."""
        if name not in self.names:
            raise ValueError(f"it has no {name}")
        too_large = ValueError(f"its {name} is larger than {most / _MIB:g} MiB")
        if self._zip.getinfo(name).file_size > most:
            raise too_large
        try:
            with self._zip.open(name) as member:
                content = member.read(most + 1)
        except _DAMAGED as error:
            raise ValueError(f"its {name} is damaged ({first_line(error)})") from None
        if len(content) > most:
            raise too_large
        return content


class _Bounded(io.BytesIO):
    """Bytes of which only so many are read at once: a table of contents must be short."""

    most = _LARGEST_DIRECTORY

    def read(self, size: int | None = -1, /) -> bytes:
        left = len(self.getbuffer()) - self.tell()
        if (left if size is None or size < 0 else size) > self.most:
            raise OSError("its table of contents is too long")
        return super().read(size)


def read_file(path: Path, most: int = LARGEST_FILE) -> bytes:
    """The bytes of a regular file; a device, a pipe or a giant is a ValueError."""
    try:
        if not path.is_file():
            raise ValueError("it is no regular file")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise ValueError(error.strerror or "it cannot be opened") from None
    if len(content) > most:
        raise ValueError(f"it is larger than {most / _MIB:g} MiB")
    return content


def first_line(error: Exception) -> str:
    """What an error says, short and on one line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
