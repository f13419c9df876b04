"""Files that are whole or not there, and what a result needs to be made again."""

from __future__ import annotations

import errno
import json
import os
import platform
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NOT_WRITTEN = "could not be written"  # is said of every file that was not
_PART = ".midstride-part-"  # begins the name of a file that is not whole yet
_FULL = "free some space there, and go on with the same command (a training with --resume)"
_READ_ONLY = "choose a folder that can be written to"
_WHY = {
    errno.ENOSPC: f"the disk is full; {_FULL}",
    errno.EDQUOT: f"the disk quota is used up; {_FULL}",
    errno.EFBIG: f"it is larger than files may be here; {_FULL}",
    errno.EIO: "the disk reports an error; see to the disk before going on",
    errno.EROFS: f"the disk is read-only; {_READ_ONLY}",
    errno.EACCES: f"permission is denied; {_READ_ONLY}",
    errno.EPERM: f"that is not permitted; {_READ_ONLY}",
    errno.ENAMETOOLONG: "its name is too long; give a shorter one",
    errno.ENOTDIR: "a file is where its folder should be; give another folder",
    errno.EEXIST: "a file is where its folder should be; give another folder",
    errno.EISDIR: "a folder of its name is there; give another one",
}
_PACKAGES = (
    "midstride", "numpy", "scipy", "mujoco", "dm_control", "gymnasium", "jax", "jaxlib", "equinox",
    "optax",
)  # fmt: skip


class NotWritten(OSError):
    """A file that could not be written: which one, why, and what to do. Nothing else is lost."""

    def __init__(self, path: Path, error: OSError) -> None:
        why = _WHY.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
        super().__init__(f"{path} {NOT_WRITTEN}: {why}")
        self.errno = error.errno


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file completely or not at all."""
    data = memoryview(content.encode() if isinstance(content, str) else content)
    with part_of(path) as (descriptor, _):
        while data:
            data = data[os.write(descriptor, data) :]


@contextmanager
def part_of(path: Path) -> Iterator[tuple[int, Path]]:
    """A new file, open for writing, that becomes `path` if all goes well; its other name.

    It has that name in the same folder, is on the disk before it is renamed, and so is its new name
    before this returns. A part is locked while it is written: one that nobody holds was left by a
    process that was killed, and goes away when its folder is next written to.
    """
    try:
        _make_folder(path.parent)
        _sweep(path.parent)
        descriptor, part = _new_part(path.parent)
    except OSError as error:
        raise NotWritten(path, error) from error
    try:
        yield descriptor, part
        os.fsync(descriptor)
        os.chmod(part, 0o644)
        if os.name == "nt":  # it renames no open files
            os.close(descriptor)
        os.replace(part, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(part)
        if isinstance(error, OSError) and not isinstance(error, NotWritten):
            raise NotWritten(path, error) from error
        raise
    finally:
        with suppress(OSError):
            os.close(descriptor)  # ends the lock


def _new_part(folder: Path) -> tuple[int, Path]:
    while True:
        # Without the ending of the file, by which others look for whole ones.
        descriptor, name = tempfile.mkstemp(prefix=_PART, dir=folder)
        try:
            _lock(descriptor, wait=True)
            if os.fstat(descriptor).st_nlink:  # nobody swept it before it was locked
                return descriptor, Path(name)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            os.close(descriptor)
            raise
        os.close(descriptor)


@cache
def _sweep(folder: Path) -> None:
    """Remove the parts that killed processes left in a folder; once, later ones are our own."""
    if sys.platform == "win32":  # has no locks to tell them by
        return
    for part in folder.glob(f"{_PART}*"):
        with suppress(OSError):  # it is gone, or held, or cannot be locked here
            descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                _lock(descriptor, wait=False)
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    os.unlink(part)
            finally:
                os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> None:
    """Hold a file until it is closed. A part that cannot be locked can be written all the same."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        if not wait:
            raise


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, and have their names on the disk."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make_folder(folder.parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk: a rename is not, before."""
    if sys.platform == "win32":  # opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some drives cannot
            raise
    finally:
        os.close(descriptor)


def write_provenance(
    folder: Path, config: Mapping[str, Any], seconds: float, trained: Sequence[Any] = ()
) -> None:
    """`config.json` of a result: the command, its configuration, versions and time taken.

    trained: what trained the policies, where that was not this process (`study.trained_by`)
    """
    program = Path(sys.argv[0]).name.replace("__main__.py", "midstride")
    record = {
        "command": " ".join([program, *sys.argv[1:]]),
        "config": dict(config),
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
        **({"trained": list(trained)} if trained else {}),
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
