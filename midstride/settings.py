"""Settings: frozen dataclasses whose types, bounds and names are checked, wherever they come from.

An environment, an agent and a run each have their own, in the module that uses them. Flags, TOML,
JSON and Python go through the same checks and give the same sentences. A bound is written with the
type, `Annotated[int, Range(1)]`, and so are words for what a value is. The text under a field is
its help.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import numbers
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

_LONGEST = 1000  # letters of an error, whatever was in a file


@dataclass(frozen=True)
class Range:
    """What a number may be, bounds included."""

    low: float
    high: float = math.inf

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"of at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Settings:
    """What some part of a training needs to know; checked as a whole when it is made."""

    kind: ClassVar[str] = "setting"  # what a name of it is called in errors

    def __post_init__(self) -> None:
        for name, hint in types_of(type(self)).items():
            object.__setattr__(self, name, checked(name, getattr(self, name), hint))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From the values of a file; an error for names that there are not."""
        for name in values:
            check_name(name, tuple(types_of(cls)), f"{cls.kind}")
        for field in fields(cls):
            if field.default is MISSING and field.name not in values:
                raise ValueError(f"the {cls.kind} {field.name} is missing")
        try:
            return cls(**values)
        except ValueError as error:
            if len(str(error)) <= _LONGEST:
                raise
            raise ValueError(one_line(error)) from None

    def to_dict(self) -> dict[str, Any]:
        """All values, defaults too, as a file can hold them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def check_name(name: str, known: Sequence[str], what: str) -> None:
    """An error with the nearest known name, if `name` is not one."""
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else f" (known: {', '.join(known)})"
        raise ValueError(f"unknown {what} {shown(name)}{hint}")


def shown(value: Any, longest: int = 100) -> str:
    """A value for an error: on one line, and not longer than it helps."""
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= longest else f"{text[:longest]}..."


def one_line(error: BaseException, longest: int = _LONGEST) -> str:
    """What an error says, on one line that is not too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= longest else f"{text[:longest]}..."


def types_of(kind: type[Settings]) -> dict[str, Any]:
    """The type of each field, in order."""
    return _types_of(kind)  # type: ignore[arg-type]


@cache
def _types_of(kind: type[Settings]) -> dict[str, Any]:
    every = get_type_hints(kind, include_extras=True)
    return {field.name: every[field.name] for field in fields(kind)}


def checked(name: str, value: Any, hint: Any) -> Any:
    """`value` as the type that the hint asks for, or an error in one sentence."""
    bounds = next((note for note in _notes(hint) if isinstance(note, Range)), None)
    for option in _options(hint):
        fits, found = _as(option, value)
        if fits:
            bounded = isinstance(found, (int, float)) and bounds is not None
            if bounded and bounds and not bounds.low <= found <= bounds.high:
                raise ValueError(f"{name} must be {describe(hint)} {bounds}, got {shown(value)}")
            return found
    raise ValueError(f"{shown(name)} must be {describe(hint)}, got {shown(repr(value))}")


@cache
def _notes(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


@cache
def _options(hint: Any) -> tuple[Any, ...]:
    """The types of a union, notes left out."""
    if get_origin(hint) is Annotated:
        return _options(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(option for part in get_args(hint) for option in _options(part))
    return (hint,)


def _as(hint: Any, value: Any) -> tuple[bool, Any]:
    """Whether the value is of a type, and the value as that type."""
    if get_origin(hint) is Literal:
        return value in get_args(hint) and not isinstance(value, bool), value
    if get_origin(hint) is tuple:
        return _as_tuple(get_args(hint), value)
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if hint is float:
        try:
            whole = is_number and math.isfinite(value)
        except OverflowError:  # a whole number that no float can be
            whole = False
        return whole, float(value) if whole else value
    if hint is int:
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return whole, int(value) if whole else value
    return isinstance(value, hint), value


def _as_tuple(parts: tuple[Any, ...], value: Any) -> tuple[bool, Any]:
    if not isinstance(value, (tuple, list)):
        return False, value
    kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else list(parts)
    if len(kinds) != len(value):
        return False, value
    found = [_as(kind, one) for kind, one in zip(kinds, value, strict=True)]
    return all(fits for fits, _ in found), tuple(one for _, one in found)


_WORDS = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text",
    dict: "names and values",
}  # fmt: skip


def describe(hint: Any) -> str:
    """A type in words, for errors and help."""
    words = [note for note in _notes(hint) if isinstance(note, str)]
    if words:
        return words[0]
    if get_origin(hint) is Annotated:
        return describe(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(dict.fromkeys(describe(o) for o in get_args(hint) if o is not NoneType))
    if get_origin(hint) is Literal:
        choices = [str(choice) for choice in get_args(hint)]
        return f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if parts[-1] is Ellipsis:
            return f"a list, each {describe(parts[0])}"
        return f"{len(parts)} values, each {describe(parts[0])}"
    return _WORDS.get(hint, hint.__name__)


def from_text(name: str, texts: Sequence[str], hint: Any) -> Any:
    """The value that is written on the command line as `texts`; checked when it is used."""
    options = [option for option in _options(hint) if option is not NoneType]
    for option in options:
        if get_origin(option) is tuple and (len(texts) != 1 or len(options) == 1):
            return tuple(from_text(name, [text], get_args(option)[0]) for text in texts)
    if len(texts) != 1:
        raise ValueError(f"{name} takes one value, got {len(texts)}")
    (text,) = texts
    if str in options:
        return text
    for option in options:
        number = _number(text) if option in (int, float) else None
        if option is int and number is not None and number == int(number):
            return int(text) if text.lstrip("-").isdecimal() else int(number)
        if option is float and number is not None:
            return number
        if option is bool and text in ("true", "false"):
            return text == "true"
        if get_origin(option) is Literal and text in map(str, get_args(option)):
            return next(choice for choice in get_args(option) if str(choice) == text)
    raise ValueError(f"{name} must be {describe(hint)}, got {text!r}")


def _number(text: str) -> float | None:
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


@cache
def help_of(kind: type[Settings]) -> dict[str, str]:
    """The text under each field, that of a base class where there is no other."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not issubclass(owner, Settings) or owner is Settings:
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(tree, ast.ClassDef)
        for line, following in zip(tree.body, tree.body[1:], strict=False):
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                found[line.target.id] = " ".join(str(following.value.value).split())
    return found
