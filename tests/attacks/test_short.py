"""Every attack in a short form, and how they count."""

import json
import subprocess
import sys

import pytest

from attacks.__main__ import ATTACKS
from attacks.children import Ended
from attacks.counts import KINDS, Counts
from attacks.result import record, table


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_a_short_attack_does_no_harm(tmp_path, name):
    command = [
        sys.executable, "-m", "attacks", name, "--kills", "20", "--mutations", "5000",
        "--share", "0.05", "--minutes", "20", "--seed", "1", "--output", str(tmp_path),
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    section = json.loads((tmp_path / "attack.json").read_text())[f"{name}, seed 1"]
    tries = sum(counts["tries"] for counts in section["counts"].values())
    assert tries >= {"kills": 20, "mutations": 5000}.get(name, 10)


def test_harm_is_counted_and_told(tmp_path, capsys):
    counts = Counts()
    counts.tries = 3
    bad = Ended(1, None, "", "Traceback (most recent call last):\n  x\n", 1.0)
    counts.watch(bad, "one")
    counts.expect_done(Ended(2, None, "", "midstride: no\n", 1.0), "two")
    counts.expect_done(Ended(None, 9, "", "", 200.0, hung=True), "three")
    assert {kind: counts.troubles[kind] for kind in ("lost", "tracebacks", "hangs")} == {
        "lost": 1, "tracebacks": 1, "hangs": 1,
    }  # fmt: skip
    assert "two cannot go on" in capsys.readouterr().err
    record(tmp_path, "first", 0, 1.0, {"kills: of one": counts, "kills: of two": Counts(tries=4)})
    record(tmp_path, "second", 0, 1.0, {"signals": Counts(tries=5)})
    for _ in range(2):  # what is made again replaces what was there
        record(tmp_path, "second", 1, 1.0, {"signals": Counts(tries=2)})
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[0] == f"| attack | tries | {' | '.join(KINDS)} |"
    assert lines[2:] == [
        "| kills | 7 | 1 | 0 | 1 | 1 | 0 | 0 | 0 |",
        "| signals | 7 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |",
        "| all | 14 | 1 | 0 | 1 | 1 | 0 | 0 | 0 |",
    ]
    assert table(json.loads((tmp_path / "attack.json").read_text())) == "\n".join([*lines, ""])


def test_a_sentence_is_one_line_and_exit_code_2():
    said = "midstride: the disk is full\n"
    assert Ended(2, None, "", said, 1.0).is_a_sentence
    assert not Ended(1, None, "", said, 1.0).is_a_sentence
    assert not Ended(2, None, "", said * 2, 1.0).is_a_sentence
    assert not Ended(2, None, "", "", 1.0).is_a_sentence
