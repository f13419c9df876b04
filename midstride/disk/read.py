"""The one reader of files: what they should be, or one sentence that says what is wrong with which.

A file may be damaged, or a stranger's. Only regular files are opened, without waiting; nothing is
larger than it may be; numbers are finite; names are not given twice; every value has the type that
is expected. All errors are `ValueError` and name the file.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from midstride.settings import checked, one_line

MIB = 2**20
LARGEST_JSON = 64 * MIB
LARGEST_TABLE = 64 * MIB
LARGEST_TOML = MIB
DEEPEST = 32  # of lists and tables in one another
_MOST_BITS = 256  # of a whole number; a random generator's state has 128
_LONGEST_CELL = 2**20
_READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
Hints = Mapping[str, Any]  # name -> type, as settings have them


class Missing(ValueError):
    """A file that is not there."""


# --- Bytes ---------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A regular file, open for reading: a pipe or a device would never end, or do something."""
    try:
        handle = os.open(path, _READING)
    except (FileNotFoundError, NotADirectoryError):
        raise Missing(f"{path} is missing") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:  # a name that no file can have
        raise ValueError(f"{str(path)!r} cannot be the name of a file") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{path} cannot be read: it is not a regular file")
        yield handle
    finally:
        os.close(handle)


def read_bytes(path: Path, largest: int = LARGEST_JSON) -> bytes:
    """The content of a regular file of at most `largest` bytes."""
    with opened(path) as handle:
        size = os.fstat(handle).st_size
        if size > largest:
            raise ValueError(
                f"{path} is too large: {size:,} bytes, and at most {largest:,} are read"
            )
        parts, left = [], largest + 1
        try:
            while left > 0 and (part := os.read(handle, min(left, MIB))):
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        if left <= 0:
            raise ValueError(f"{path} is too large: at most {largest:,} bytes are read")
        return b"".join(parts)


def read_text(path: Path, largest: int = LARGEST_JSON) -> str:
    """The text of a file in UTF-8."""
    return as_text(read_bytes(path, largest), path)


def as_text(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: byte {error.start} is not text in UTF-8") from None


# --- JSON, TOML, CSV -----------------------------------------------------------------------------


@contextmanager
def damage_of(path: Path | str) -> Iterator[None]:
    """What is wrong inside is told as damage of a file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {one_line(error)}") from None


@contextmanager
def in_file(path: Path | str) -> Iterator[None]:
    """What is refused inside is told with the name of the file that it comes from."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {one_line(error)}") from None


def read_json(path: Path, needed: Hints, optional: Hints | None = None) -> dict[str, Any]:
    """A table of names and values, those named here of the types named here; others may be."""
    return parse_json(read_bytes(path), path, needed, optional)


def parse_json(
    data: bytes, path: Path | str, needed: Hints, optional: Hints | None = None
) -> dict[str, Any]:
    """The same of the content of a file."""
    with damage_of(path):
        found = _loads(_utf8(data))
        _check_tree(found)
        return check_record(found, needed, optional)


def read_json_lines(path: Path, needed: Hints, others: Any) -> list[dict[str, Any]]:
    """A table on each line; `others` is the type of every value that is not named."""
    lines = read_text(path).removesuffix("\n").split("\n")
    found: list[dict[str, Any]] = []
    if lines == [""]:
        return found
    for number, line in enumerate(lines, start=1):
        with damage_of(path), _in_line(number):
            record = check_record(_loads(line), needed)
            for name, value in record.items():
                if name not in needed:
                    checked(name, value, others)
            found.append(record)
    return found


def parse_toml(source: str, name: str) -> dict[str, Any]:
    """The tables of a specification."""
    try:
        if len(source) > LARGEST_TOML:
            raise ValueError(f"it has more than {LARGEST_TOML:,} letters")
        found = tomllib.loads(source)
        _check_tree(found)  # which may hold inf: no setting is of that value
    except RecursionError:
        raise ValueError(f"the specification {name} is not TOML: {_TOO_DEEP}") from None
    except ValueError as error:
        raise ValueError(f"the specification {name} is not TOML: {one_line(error)}") from None
    return found


def read_csv(path: Path, needed: Sequence[str], most: int) -> list[dict[str, str]]:
    """At most so many rows of a table, by the names of its columns, all as text."""
    text = read_text(path, LARGEST_TABLE)
    with damage_of(path):
        rows = list(_rows(text, most))
        if not rows:
            raise ValueError("it is empty")
        heading, *lines = rows
        if len(set(heading)) < len(heading):
            raise ValueError("two of its columns have the same name")
        missing = [name for name in needed if name not in heading]
        if missing:
            raise ValueError(f"it has no column {missing[0]}")
        if not lines:
            raise ValueError("it has a heading and no rows")
        for number, line in enumerate(lines, start=2):
            if len(line) != len(heading):
                raise ValueError(f"row {number} has {len(line)} cells, not {len(heading)}")
        return [dict(zip(heading, line, strict=True)) for line in lines]


def _rows(text: str, most: int) -> Iterator[list[str]]:
    if "\0" in text:
        raise ValueError("it has bytes that are no text")
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), strict=True)):
            if number > most:
                raise ValueError(f"it has more than {most:,} rows")
            if row:
                yield row
    except csv.Error as error:
        raise ValueError(one_line(error)) from None
    finally:
        csv.field_size_limit(before)


# --- Values --------------------------------------------------------------------------------------

_TOO_DEEP = f"lists and tables are more than {DEEPEST} deep"


def check_record(found: Any, needed: Hints, optional: Hints | None = None) -> dict[str, Any]:
    """A table whose values have the types that are asked for, as it was."""
    if not isinstance(found, dict):
        raise ValueError("it holds no names and values")
    for name, hint in needed.items():
        if name not in found:
            raise ValueError(f"it has no {name}")
        checked(name, found[name], hint)
    for name, hint in (optional or {}).items():
        if name in found:
            checked(name, found[name], hint)
    return found


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not text in UTF-8") from None


def _loads(text: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_named_once,
            parse_constant=_refuse,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _check_tree(value: Any, depth: int = 0) -> None:
    """Not too deep, no number too large: whatever is done with it later ends."""
    if depth > DEEPEST:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, (dict, list)):
        values: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for one in values:
            _check_tree(one, depth + 1)
    elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError("a number is too large")


@contextmanager
def _in_line(number: int) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"line {number}: {one_line(error)}") from None
