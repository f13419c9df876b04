"""The one reader: what is not as it should be is one sentence that names the file."""

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstride.disk.read import (
    DEEPEST,
    Missing,
    parse_json,
    parse_toml,
    read_bytes,
    read_csv,
    read_json,
    read_json_lines,
)

NEEDED = {"steps": int, "name": str}


def refused(load, *args):
    """The sentence by which something is refused."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load(*args)
    assert type(caught.value) in (ValueError, Missing)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


DAMAGED = {
    b"": "Expecting value",
    b"\xef\xbb\xbf{}": "BOM",
    b"\xff\xfe": "byte 0 is not text in UTF-8",
    b'{"steps": 1, "name": "a\x00"}': "Invalid control character",
    b'{"steps": 1}\0': "Extra data",
    b"[1, 2]": "it holds no names and values",
    b"null": "it holds no names and values",
    b'{"steps": 1}': "it has no name",
    b'{"steps": "1", "name": "a"}': "steps must be a whole number, got '1'",
    b'{"steps": true, "name": "a"}': "steps must be a whole number, got True",
    b'{"steps": 1.5, "name": "a"}': "steps must be a whole number, got 1.5",
    b'{"steps": 1, "steps": 2, "name": "a"}': "a name is given twice",
    b'{"steps": 1, "name": "a", "x": NaN}': "NaN is not a number of JSON",
    b'{"steps": 1, "name": "a", "x": -Infinity}': "-Infinity is not a number of JSON",
    b'{"steps": 1, "name": "a", "x": 1e400}': "a number is too large",
    b'{"steps": 1, "name": "a", "x": ' + b"9" * 400 + b"}": "a number is too large",
    b'{"steps": 1, "name": "a", "x": ' + b"9" * 5000 + b"}": "integer string",
    b'{"x": ' * 100_000: f"more than {DEEPEST} deep",
    b'{"x": ' + b"[" * 40 + b"]" * 40 + b"}": f"more than {DEEPEST} deep",
    b'{"steps": 1, "name": [' + b'"a",' * 10_000 + b'"a"]}': "name must be text, got ['a'",
}


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_json(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    said = refused(read_json, path, NEEDED)
    assert said.startswith(f"{path} is damaged: ")
    assert DAMAGED[content] in said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_what_json_holds_is_read_as_it_was(values):
    assert parse_json(json.dumps(values).encode(), "a file", {}) == values


def test_what_is_not_a_file_is_not_opened(tmp_path):
    folder, pipe, loop = tmp_path / "folder", tmp_path / "pipe", tmp_path / "loop"
    folder.mkdir()
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    assert "it is not a regular file" in refused(read_bytes, folder)
    assert "it is not a regular file" in refused(read_bytes, pipe)  # and does not wait for a writer
    assert "cannot be read" in refused(read_bytes, loop)
    assert "cannot be the name of a file" in refused(read_bytes, tmp_path / "a\0b")
    assert "is missing" in refused(read_bytes, tmp_path / "nothing")
    assert "is missing" in refused(read_bytes, tmp_path / "pipe" / "below")
    assert "it is not a regular file" in refused(read_bytes, Path("/dev/zero"))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_an_unreadable_file(tmp_path):
    path = tmp_path / "a"
    path.touch(mode=0)
    assert "cannot be read: Permission denied" in refused(read_bytes, path)


def test_a_file_is_at_most_as_large_as_it_may_be(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert read_bytes(path, 100) == b"x" * 100
    assert "too large: 100 bytes, and at most 99" in refused(read_bytes, path, 99)
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: nothing is allocated, on disk or here
    assert "too large" in refused(read_bytes, path)


def test_damaged_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    for content, message in {
        '{"steps": 1}\n{"steps"': "line 2: ",
        '{"steps": 1}\n\n': "line 2: Expecting value",
        '{"steps": 1}\n[]\n': "line 2: it holds no names and values",
        '{"steps": 1, "loss": "x"}\n': "line 1: loss must be a number, got 'x'",
        '{"steps": 1, "loss": NaN}\n': "line 1: NaN",
        '{"steps": 1, "loss": []}\n': "line 1: loss must be a number",
    }.items():
        path.write_text(content)
        assert message in refused(read_json_lines, path, {"steps": int}, float | None)
    path.write_text("")
    assert read_json_lines(path, {"steps": int}, float | None) == []


def test_damaged_tables(tmp_path):
    path = tmp_path / "a.csv"
    for content, message in {
        "": "it is empty",
        "arm\n": "a heading and no rows",
        "draw\n1\n": "it has no column arm",
        "arm,arm\n1,2\n": "the same name",
        "arm,draw\n1\n": "row 2 has 1 cells, not 2",
        'arm\n"1\n': "unexpected end",
        "arm\n\0\n": "no text",
        "arm\n" + "1\n" * 11: "more than 10 rows",
    }.items():
        path.write_text(content)
        assert message in refused(read_csv, path, ("arm",), 10)
    path.write_text('arm,draw\n"a, ""b""",1\n')
    assert read_csv(path, ("arm",), 10) == [{"arm": 'a, "b"', "draw": "1"}]


@pytest.mark.parametrize(
    "source",
    ["[" * 50_000, "a = " + "[" * 5000, "a = 0x" + "f" * 6000, "a = " + "9" * 5000, "a = 1\na = 2",
     "a = '\0'", "x" * 2_000_000, "a." * 3000 + "b = 1"],
    ids=range(8),
)  # fmt: skip
def test_damaged_toml(source):
    assert refused(parse_toml, source, "bad").startswith("the specification bad is not TOML: ")


def test_reading_waits_for_nobody(tmp_path):
    """Of a pipe that somebody writes to, nothing is read either."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.open("w").close(), daemon=True)
    writer.start()
    assert "it is not a regular file" in refused(read_bytes, pipe)
