"""Arrays in safetensors files that carry a checksum of all that is in them.

Loading one runs no code. The checksum is of the file as it is written, with zeros where the
checksum stands: every flipped bit is noticed, in numbers and in names. It tells damage, not who
wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from midstride.disk.files import write_whole
from midstride.disk.read import MIB, opened
from midstride.settings import one_line

Arrays = dict[str, NDArray[Any]]
CHECKSUM = "sha256"
_ZEROS = "0" * 64
_LARGEST_HEADER = 8 * MIB
_KINDS = "biuf"  # of arrays: true or false, whole numbers, numbers


class Unsealed(ValueError):
    """A file without a checksum: made before there was one, or by others."""


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> None:
    """Write arrays and texts about them, with their checksum, whole or not at all."""
    write_whole(path, sealed(arrays, about))


def sealed(arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> bytes:
    """The content of such a file."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    data = save(contiguous, {**about, CHECKSUM: _ZEROS})
    header = data[: 8 + int.from_bytes(data[:8], "little")]
    place, total = _place_of(header, _ZEROS), hashlib.sha256(data).hexdigest()
    sealed_header = header[:place] + total.encode() + header[place + len(_ZEROS) :]
    return b"".join((sealed_header, memoryview(data)[len(header) :]))


def read_tensors(
    path: Path, needs_checksum: bool = True, largest: int | None = None
) -> tuple[Arrays, dict[str, str]]:
    """Arrays and texts of a file; an error if its checksum, or anything else, is not right.

    needs_checksum: otherwise a file that has none is read too; one that is wrong never is
    largest: bytes that the file may have; None: as many as this machine has memory
    """
    with opened(path) as handle:
        size, most = os.fstat(handle).st_size, _memory() if largest is None else largest
        if size > most:
            raise ValueError(f"{path} is too large: {size:,} bytes, and at most {most:,} are read")
        header, about = _header(handle, path)
        found = about.pop(CHECKSUM, None)
        if found is None and needs_checksum:
            raise Unsealed(f"{path} has no checksum")
        if found is not None and found != _checksum(handle, header, found, path):
            raise ValueError(f"{path} is damaged: its checksum is of another content")
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {one_line(error)}") from None
    for name, array in arrays.items():
        if array.dtype.kind not in _KINDS:
            raise ValueError(f"{path} is damaged: {name!r} is of no type of ours")
    return arrays, about


def _memory() -> int:
    """Bytes of this machine's memory; where it does not say, more than any has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 2**50


def _header(handle: int, path: Path) -> tuple[bytes, dict[str, str]]:
    """The first part of the file, and the texts in it."""
    size = os.fstat(handle).st_size
    length = int.from_bytes(os.read(handle, 8), "little")
    if size < 8 or length > min(size - 8, _LARGEST_HEADER):
        raise ValueError(f"{path} is damaged: it is not as long as it says")
    header = os.read(handle, length)
    try:
        about = json.loads(header).get("__metadata__", {})
        if not isinstance(about, dict) or not all(isinstance(t, str) for t in about.values()):
            raise ValueError("what it says of itself is not text")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {one_line(error)}") from None
    return length.to_bytes(8, "little") + header, about


def _checksum(handle: int, header: bytes, found: str, path: Path) -> str:
    """Of the file, with zeros in place of the checksum that it has."""
    try:
        place = _place_of(header, found)
    except ValueError:
        raise ValueError(f"{path} is damaged: its checksum is not where it belongs") from None
    total = hashlib.sha256(header[:place] + _ZEROS.encode() + header[place + len(found) :])
    while part := os.read(handle, MIB):
        total.update(part)
    return total.hexdigest()


def _place_of(header: bytes, checksum: str) -> int:
    """Where the checksum stands in the first part of a file."""
    return header.index(f'"{CHECKSUM}":"{checksum}"'.encode()) + len(CHECKSUM) + 4


def digest(data: bytes) -> str:
    """The checksum of the content of a file."""
    return hashlib.sha256(data).hexdigest()


__all__ = ["Arrays", "Unsealed", "digest", "read_tensors", "sealed", "write_tensors"]
