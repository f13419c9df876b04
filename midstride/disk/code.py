"""Which code made a training: a name for all of the source that its numbers can depend on.

Trainings are compared with one another, so they are reused only by the code that made them. What
counts is the program: comments, docstrings and layout do not, nor do the parts that only show, run
or collect trainings.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# What no number of a training depends on; whatever is new counts, until it is named here.
_APART = frozenset(
    {"cli", "disk", "extras.py", "measure", "paper", "realtime", "registration.py", "report",
     "scale", "sweep", "theory", "__init__.py", "__main__.py"}
)  # fmt: skip
_JUDGES = ("measure/evaluate.py",)  # but results do depend on this


@cache
def code_version() -> str:
    """Short name: equal programs have equal names, whatever is written around them."""
    digest = hashlib.sha256()
    for path in sorted(code_files()):
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\n".encode())
        digest.update(
            program_of(path.read_text()).encode() if path.suffix == ".py" else path.read_bytes()
        )
    return digest.hexdigest()[:12]


def code_files() -> Iterator[Path]:
    """The files of midstride that decide what comes of a training."""
    yield from (_PACKAGE / name for name in _JUDGES)
    for path in _PACKAGE.iterdir():
        if path.name not in _APART and path.name != "__pycache__":
            found = path.rglob("*") if path.is_dir() else (path,)
            yield from (f for f in found if f.is_file() and "__pycache__" not in f.parts)


def program_of(source: str) -> str:
    """A module's source without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):  # texts under settings are their help
            node.body = [line for line in body if not _is_text(line)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(line: ast.AST) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
