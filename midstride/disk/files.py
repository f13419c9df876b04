"""Files that are whole or not there, and what a result needs to be made again."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
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
    program = Path(sys.argv[0]).name.replace("__main__.py", "midstride")
    record = {
        "command": " ".join([program, *sys.argv[1:]]),
        "config": dict(config),
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
        "seconds": round(seconds, 1),
    }
    write_whole(folder / "config.json", json.dumps(record, indent=2, allow_nan=False) + "\n")


def machine() -> str:
    """What kind of machine this is, for the record."""
    kind = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return f"{kind}, {line.partition(':')[2].strip()}"
    return kind


@cache
def commit() -> str | None:
    """The commit of the code, and whether it was changed since; None outside of a checkout."""
    here = Path(__file__).parent
    git = ["git", "-C", str(here)]
    try:
        found = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", str(here)],
            capture_output=True, text=True, timeout=10, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{found}{' and changes' if changed else ''}"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
