"""Files that are whole or not there, and what a result needs to be made again."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = (
    "midstride", "numpy", "scipy", "mujoco", "dm_control", "gymnasium", "jax", "equinox", "optax",
)  # fmt: skip


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file completely or not at all: temporary name, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_provenance(folder: Path, config: Mapping[str, Any], seconds: float) -> None:
    """`config.json` of a result: the command, its configuration, versions and time taken."""
    record = {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "config": dict(config),
        "versions": versions(),
        "machine": machine(),
        "seconds": round(seconds, 1),
    }
    write_whole(folder / "config.json", json.dumps(record, indent=2) + "\n")


def machine() -> str:
    """What kind of machine this is, for the record."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
