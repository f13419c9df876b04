"""The options of a command, made from settings; whatever is wrong with them is one sentence.

argparse splits the words and lays out the help. Types, bounds and names are checked by the settings
themselves, so that flags, TOML and Python give the same sentences. Only what was given is handed
on: defaults stay with the settings.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from midstride.settings import Settings, describe, from_text, help_of, types_of

_NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)
_WIDTH = 100
_METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
S = TypeVar("S", bound=Settings)


class Group(NamedTuple):
    """Settings whose fields are options of a command."""

    title: str
    kind: type[Settings]
    defaults: Settings | None = None  # that help shows, where they are not those of the kind


class Parser(argparse.ArgumentParser):
    """argparse, with our errors and without abbreviations."""

    def __init__(self, prog: str, usage: str, text: str) -> None:
        width = min(shutil.get_terminal_size().columns, _WIDTH)
        super().__init__(
            prog=prog,
            usage=f"midstride {usage}",
            description=text,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, max_help_position=32, width=width
            ),
            allow_abbrev=False,
            add_help=False,
        )

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message}")


@dataclass(frozen=True)
class Syntax:
    """How a command is written.

    words: what was written of it so far, such as "train cartpole dqn"
    usage: how it is written in general, such as "train TASK [AGENT] [options]"
    text: what its help says above the options
    positional: settings that are written without their name, in this order
    read_before: settings that `words` has already
    """

    words: str
    usage: str
    text: str
    groups: tuple[Group, ...]
    positional: tuple[str, ...] = ()
    read_before: tuple[str, ...] = ()

    def read(self, args: Sequence[str]) -> dict[str, Any]:
        """The settings that were given, by name; an error in one sentence for what is wrong."""
        hints = self.hints()
        parser = self.parser()
        given, further = parser.parse_known_args(self._tidied(args))
        if further:
            raise ValueError(
                f"{self.words} does not take {further[0].strip()!r}: see "
                f"midstride {self.words} --help"
            )
        found = {}
        for name, value in vars(given).items():
            if name in self.positional and value in (None, []):
                continue
            found[name] = value if isinstance(value, bool) else _value(name, value, hints[name])
        self._check_positional(found)
        return found

    def hints(self) -> dict[str, Any]:
        """The types of all settings that can be given."""
        every = [types_of(group.kind) for group in self.groups]
        return {
            name: hint
            for hints in every
            for name, hint in hints.items()
            if name not in self.read_before
        }

    def parser(self) -> Parser:
        parser = Parser(self.words, self.usage, self.text)
        group = parser.add_argument_group("options") if not self.groups else None
        for title, kind, defaults in self.groups:
            group = parser.add_argument_group(title)
            shown = _defaults(kind, defaults)
            for name, hint in types_of(kind).items():
                if name not in self.read_before:
                    self._add(group, name, hint, _help(kind, name, shown))
        assert group is not None
        group.add_argument("--help", "-h", action="help", help="show this")
        return parser

    def _add(self, group: Any, name: str, hint: Any, text: str) -> None:
        option = _option(name)
        common: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text}
        if name in self.positional:
            count = "*" if _is_tuple(hint) else "?"
            group.add_argument(name, nargs=count, metavar=name.upper(), help=text)
        elif _kinds(hint) == (bool,):
            group.add_argument(option, action=argparse.BooleanOptionalAction, **common)
        elif _is_switch_or_name(hint):
            group.add_argument(option, nargs="?", const=True, metavar="NAME", **common)
        else:
            several = "*" if _is_tuple(hint) else None
            group.add_argument(option, nargs=several, metavar=_metavar(hint), **common)

    def _tidied(self, args: Sequence[str]) -> list[str]:
        """The words with every option in one spelling and known.

        A negative value gets a space before it, or argparse would take it for an option.
        """
        known = self._options()
        tidied = []
        for i, word in enumerate(args):
            if not _is_option(word):
                tidied.append(f" {word}" if word.startswith("-") else word)
                continue
            option, equals, value = word.partition("=")
            option = option.replace("_", "-")
            if option not in known and option not in ("--help", "-h"):
                raise ValueError(self._unknown(option, tuple(known)))
            hint = known.get(option, bool)
            is_bare = not equals and (i + 1 == len(args) or _is_option(args[i + 1]))
            if is_bare and not _is_tuple(hint) and bool not in _kinds(hint):
                raise ValueError(f"{option} needs a value: {_wanted(hint)}")
            if equals and _kinds(hint) == (bool,):
                raise ValueError(f"{option} takes no value, got {value!r}")
            tidied.append(f"{option}{equals}{value}")
        return tidied

    def _options(self) -> dict[str, Any]:
        """All options as they are written, with the types of their values."""
        found = {}
        for name, hint in self.hints().items():
            if name not in self.positional:
                found[_option(name)] = hint
                if _kinds(hint) == (bool,):
                    found[f"--no{_option(name)[1:]}"] = hint
        return found

    def _unknown(self, option: str, known: Sequence[str]) -> str:
        near = difflib.get_close_matches(option, known, 1)
        if option.removeprefix("--") in self.read_before:
            return f"{option} is no option but a word: {self.usage.splitlines()[0]}"
        hint = f"did you mean {near[0]}?" if near else f"see midstride {self.words} --help"
        return f"{self.words} has no option {option}; {hint}"

    def _check_positional(self, found: dict[str, Any]) -> None:
        for _, kind, _ in self.groups:
            for field in fields(kind):
                is_needed = field.default is MISSING and field.name in self.positional
                if is_needed and field.name not in found:
                    raise ValueError(
                        f"{self.words} needs {field.name.upper()}: {texts_of(kind)[field.name]}"
                    )


def read(kind: type[S], syntax: Syntax, args: Sequence[str]) -> S:
    """The settings of a command that has only these."""
    return kind(**syntax.read(args))


def leading_words(args: Sequence[str]) -> list[str]:
    """What is written before the first option."""
    found = []
    for word in args:
        if _is_option(word):
            break
        found.append(word)
    return found


def texts_of(kind: Any) -> dict[str, str]:
    """The text under each setting of a kind."""
    return help_of(kind)


def asks_for_help(args: Sequence[str]) -> bool:
    return "--help" in args or "-h" in args


def listed(rows: dict[str, str]) -> str:
    """Names and what they are, one under another."""
    width = max(map(len, rows)) + 2
    return "\n".join(f"  {name:{width}}{text}" for name, text in rows.items())


# --- One option ----------------------------------------------------------------------------------


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NEGATIVE.match(word)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The types that a value may have, None left out."""
    if get_origin(hint) is Annotated:
        return _kinds(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(kind for part in get_args(hint) for kind in _kinds(part))
    return () if hint is NoneType else (hint,)


def _is_tuple(hint: Any) -> bool:
    return any(get_origin(kind) is tuple for kind in _kinds(hint))


def _is_switch_or_name(hint: Any) -> bool:
    return {bool, str} <= set(_kinds(hint))


def _wanted(hint: Any) -> str:
    """What a value is, in words."""
    return "a path" if Path in _kinds(hint) else describe(hint)


def _value(name: str, given: str | list[str], hint: Any) -> Any:
    """What was written, as the setting's type."""
    texts = [text.strip() for text in ([given] if isinstance(given, str) else given)]
    return Path(texts[0]) if Path in _kinds(hint) else from_text(name, texts, hint)


def _metavar(hint: Any) -> str:
    kinds = _kinds(hint)
    if {str, float} <= set(kinds):
        return "TIME"
    parts = []
    for kind in kinds:
        if get_origin(kind) is tuple:
            kind = _kinds(get_args(kind)[0])[0]
        if get_origin(kind) is Literal:
            parts.append("|".join(map(str, get_args(kind))))
        else:
            parts.append(_METAVARS.get(kind, "VALUE"))
    return "|".join(dict.fromkeys(parts))


def _defaults(kind: type[Settings], instance: Settings | None) -> dict[str, Any]:
    if instance is not None:
        return {field.name: getattr(instance, field.name) for field in fields(kind)}
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}


def _help(kind: type[Settings], name: str, defaults: dict[str, Any]) -> str:
    """The text under a field, and its default unless the text says it."""
    text = texts_of(kind).get(name, "")
    default = defaults.get(name)
    if "(default" not in text and default is not None and default is not False and default != ():
        if isinstance(default, bool):
            shown = _option(name)
        elif isinstance(default, tuple):
            shown = " ".join(map(str, default))
        else:
            shown = str(default)
        text = f"{text} (default: {shown})"
    return text.replace("%", "%%")
