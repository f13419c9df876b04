"""Settings: one set of checks for flags, files and Python; a sentence for whatever is wrong."""

import json
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstride.learn.agent_settings import RunSettings
from midstride.learn.agents import AGENTS
from midstride.settings import Range, Settings, from_text, help_of, types_of
from midstride.tasks.registry import NAMES, settings_of


@dataclass(frozen=True)
class Base(Settings):
    """A base."""

    kind: ClassVar[str] = "setting of the test"
    count: Annotated[int, Range(1, 10)] = 3
    """how many there are"""


@dataclass(frozen=True)
class Sample(Base):
    """One of everything."""

    share: Annotated[float, Range(0)] = 0.5
    """a share, of
    two lines"""
    on: bool = False
    mode: Literal["slow", "fast"] = "slow"
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[float, float] | None = None
    either: int | Literal["all"] = 1
    time: Annotated[str | float, "a time such as 25ms"] = "25ms"


GOOD = {
    "count": 10, "share": 2, "on": True, "mode": "fast", "sizes": [3, 4], "pair": [1, 2.5],
    "either": "all", "time": 0.25,
}  # fmt: skip


def test_what_a_file_holds_comes_back():
    sample = Sample.from_dict(GOOD)
    assert sample == Sample(10, 2.0, True, "fast", (3, 4), (1.0, 2.5), "all", 0.25)
    assert isinstance(sample.share, float)
    assert Sample.from_dict(json.loads(json.dumps(sample.to_dict()))) == sample


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "count must be a whole number from 1 to 10, got 0"),
        ({"count": 11}, "count must be a whole number from 1 to 10, got 11"),
        ({"count": True}, "count must be a whole number, got True"),
        ({"count": 2.0}, r"count must be a whole number, got 2\.0"),
        ({"count": "2"}, "count must be a whole number, got '2'"),
        ({"count": None}, "count must be a whole number, got None"),
        ({"share": -0.1}, r"share must be a number of at least 0, got -0\.1"),
        ({"share": float("nan")}, "share must be a number, got nan"),
        ({"share": float("inf")}, "share must be a number, got inf"),
        ({"share": True}, "share must be a number, got True"),
        ({"on": "no"}, "on must be true or false, got 'no'"),
        ({"on": 1}, "on must be true or false, got 1"),
        ({"mode": "Fast"}, "mode must be one of slow, fast, got 'Fast'"),
        ({"sizes": 3}, "sizes must be a list, each a whole number, got 3"),
        ({"sizes": [1, "2"]}, "sizes must be a list, each a whole number"),
        ({"sizes": "12"}, "sizes must be a list, each a whole number, got '12'"),
        ({"pair": [1, 2, 3]}, "pair must be 2 values, each a number"),
        ({"either": "some"}, "either must be a whole number or all, got 'some'"),
        ({"time": []}, "time must be a time such as 25ms, got"),
        ({"cuont": 3}, "unknown setting of the test cuont; did you mean count"),
        ({"xyzzy": 3}, r"unknown setting of the test xyzzy \(known: count, share"),
    ],
)
def test_what_is_wrong_is_said(values, message):
    with pytest.raises(ValueError, match=message):
        Sample.from_dict(values)


@given(
    value=st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.lists(st.integers() | st.text(), max_size=3) | st.dictionaries(st.text(), st.none()),
    name=st.sampled_from(sorted(GOOD)),
)  # fmt: skip
def test_any_value_is_taken_or_named(value, name):
    sample, said = None, ""
    try:
        sample = Sample.from_dict({name: value})
    except ValueError as error:
        said = str(error)
    if sample is None:
        assert said.startswith(f"{name} must be ")
    else:
        assert Sample.from_dict(sample.to_dict()) == sample


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("count", ["7"], 7), ("count", ["1e1"], 10), ("count", ["1_0"], 10),
        ("share", ["1e-3"], 0.001), ("share", [".5"], 0.5), ("on", ["true"], True),
        ("mode", ["fast"], "fast"), ("sizes", ["3", "4"], (3, 4)), ("sizes", [], ()),
        ("pair", ["1", "2"], (1.0, 2.0)), ("either", ["all"], "all"), ("either", ["2"], 2),
        ("time", ["25ms"], "25ms"), ("time", ["0.025"], "0.025"),
    ],
)  # fmt: skip
def test_what_is_typed(name, texts, value):
    assert from_text(name, texts, types_of(Sample)[name]) == value


@pytest.mark.parametrize(
    ("name", "texts", "message"),
    [
        ("count", ["many"], "count must be a whole number, got 'many'"),
        ("count", ["2.5"], r"count must be a whole number, got '2\.5'"),
        ("count", ["inf"], "count must be a whole number, got 'inf'"),
        ("share", ["a"], "share must be a number, got 'a'"),
        ("mode", ["quick"], "mode must be one of slow, fast, got 'quick'"),
        ("sizes", ["1", "x"], "sizes must be a whole number, got 'x'"),
        ("count", ["1", "2"], "count takes one value, got 2"),
    ],
)
def test_what_cannot_have_been_meant(name, texts, message):
    with pytest.raises(ValueError, match=message):
        from_text(name, texts, types_of(Sample)[name])


def test_twenty_four_digits_are_a_number_and_too_large():
    count = from_text("count", ["1" * 24], types_of(Sample)["count"])
    with pytest.raises(ValueError, match="from 1 to 10"):
        Sample(count=count)


def test_help_is_the_text_under_a_field():
    assert help_of(Sample) == {"count": "how many there are", "share": "a share, of two lines"}


@pytest.mark.parametrize(
    "kind", [settings_of(name) for name in (*NAMES, "gym:X")] + [RunSettings]
    + [agent.Settings for agent in AGENTS.values()],
)  # fmt: skip
def test_every_setting_has_help_that_says_something(kind):
    texts = help_of(kind)
    missing = types_of(kind).keys() - texts.keys()
    assert not missing
    assert all(len(text) >= 8 or text in NAMES for text in texts.values()), texts
