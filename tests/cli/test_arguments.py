"""Options made from settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from midstride.cli.arguments import Group, Syntax, read
from midstride.seconds import Time
from midstride.settings import Range, Settings


@dataclass(frozen=True)
class Some(Settings):
    """One of each kind."""

    what: str
    """what it is about"""
    count: Annotated[int, Range(1, 10**12)] = 100_000
    """how many there are"""
    share: float | None = None
    """share of them, 0 to 100 %"""
    time: Time = "5ms"
    """how long it takes"""
    sizes: tuple[int, ...] = (8, 8)
    """sizes of them"""
    pair: tuple[float, float] | None = None
    """a low and a high"""
    mode: Literal["slow", "fast"] = "fast"
    """how it goes"""
    quiet: bool = False
    """say nothing"""
    output: Path = Path("out")
    """where to"""
    resume: bool | str = False
    """go on"""


SYNTAX = Syntax("try", "try WHAT [options]", "Try it.", (Group("options", Some),), ("what",))


def given(text: str) -> dict:
    return SYNTAX.read(text.split())


def test_only_what_was_given_is_handed_on():
    assert given("this") == {"what": "this"}
    assert read(Some, SYNTAX, ["this"]) == Some("this")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--count 1e5", {"count": 100_000}),
        ("--count 100_000", {"count": 100_000}),
        ("--count=7", {"count": 7}),
        ("--share -1.5", {"share": -1.5}),
        ("--time 25ms", {"time": "25ms"}),
        ("--time 0", {"time": "0"}),  # as it was written, and as a default is written
        ("--sizes 1 2 3", {"sizes": (1, 2, 3)}),
        ("--sizes", {"sizes": ()}),
        ("--pair -1e3 1", {"pair": (-1000.0, 1.0)}),
        ("--mode slow", {"mode": "slow"}),
        ("--quiet", {"quiet": True}),
        ("--no-quiet", {"quiet": False}),
        ("--output a/b", {"output": Path("a/b")}),
        ("--resume", {"resume": True}),
        ("--resume mine", {"resume": "mine"}),
        ("--resume --quiet", {"resume": True, "quiet": True}),
    ],
)
def test_values_have_the_type_of_their_setting(text, expected):
    assert given(f"this {text}") == {"what": "this", **expected}


def test_dashes_and_underscores_are_alike():
    @dataclass(frozen=True)
    class Long(Settings):
        long_name: int = 0

    syntax = Syntax("try", "try", "", (Group("options", Long),))
    assert syntax.read(["--long-name", "3"]) == syntax.read(["--long_name=3"]) == {"long_name": 3}


def test_help_has_texts_and_defaults(capsys):
    with pytest.raises(SystemExit) as end:
        given("--help")
    assert end.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("usage: midstride try WHAT [options] Try it.")
    assert "--count N how many there are (default: 100000)" in out
    assert "--share X share of them, 0 to 100 % " in out
    assert "--sizes [N ...] sizes of them (default: 8 8)" in out
    assert "--mode slow|fast how it goes (default: fast)" in out
    assert "--quiet, --no-quiet say nothing " in out
    assert "--time TIME" in out


def test_defaults_of_help_can_be_another_instance(capsys):
    usual = Some("this", count=5)
    syntax = Syntax("try", "try", "", (Group("options", Some, usual),), ("what",))
    assert "how many there are (default: 5)" in " ".join(syntax.parser().format_help().split())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "try needs WHAT: what it is about"),
        ("this that", "try does not take 'that'"),
        ("this --cuont 5", "try has no option --cuont; did you mean --count?"),
        ("this --coun 5", "try has no option --coun; did you mean --count?"),
        ("this -x", "try has no option -x; see midstride try --help"),
        ("this --count", "--count needs a value: a whole number"),
        ("this --time --quiet", "--time needs a value: a time such as 25ms"),
        ("this --output", "--output needs a value: a path"),
        ("this --mode", "--mode needs a value: one of slow, fast"),
        ("this --count x", "count must be a whole number, got 'x'"),
        ("this --mode medium", "mode must be one of slow, fast, got 'medium'"),
        ("this --quiet=1", "--quiet takes no value, got '1'"),
    ],
)
def test_errors_are_a_sentence(text, error):
    with pytest.raises(ValueError, match="^" + error.replace("?", "\\?")):
        given(text)


def test_bounds_are_those_of_the_settings():
    with pytest.raises(ValueError, match=r"^count must be a whole number from 1 to 1e\+12, got 0$"):
        read(Some, SYNTAX, ["this", "--count", "0"])
    with pytest.raises(ValueError, match=r"^pair must be 2 values"):
        read(Some, SYNTAX, ["this", "--pair", "1"])
