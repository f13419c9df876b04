"""How numbers and names of trainings are written, wherever they are shown.

A name is whatever a person or a file says: on the screen, in a plot and in a table it is text, and
never markup, mathematics, a format or a command to the terminal.
"""

from __future__ import annotations

from rich.text import Text

_JOINS = "\u200d"  # emoji; not printable by itself
_LONG_LABEL = 60


def format_return(value: float | None, sign: str = "") -> str:
    """Returns of thousands without digits, returns of one (success shares) with two; None as -.

    sign: "+" shows that of positive numbers too
    """
    if value is None:
        return "-"
    return f"{value:{sign}.0f}" if abs(value) >= 10 else f"{value:{sign}.2f}"


def printable(text: str) -> str:
    """A text on one line, with what would command a terminal spelled out (\\x1b)."""
    return "".join(
        c if c.isprintable() or c == _JOINS else c.encode("unicode_escape").decode() for c in text
    )


def plain(text: object, style: str = "") -> Text:
    """A text for the screen that stays as it is, whatever it looks like."""
    return Text(printable(str(text)), style)


def saved(where: object, *rest: str, what: str = "Saved: ") -> Text:
    """The line that says where something was saved."""
    return Text.assemble(what, plain(where, "bold"), *(printable(text) for text in rest))


def label(text: str) -> str:
    """A text for Matplotlib that is no mathematics, is not left out of a legend, and fits."""
    shown = printable(text)
    if len(shown) > _LONG_LABEL:
        shown = shown[: _LONG_LABEL - 1] + "\u2026"
    return (" " if shown.startswith("_") else "") + shown.replace("$", r"\$")
