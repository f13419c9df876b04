"""Some mutated files through every loader; `python -m attacks` feeds a million."""

from dataclasses import replace
from pathlib import Path

import pytest

from attacks import mutations
from attacks.mutants import CANARY, SECRET
from attacks.mutations import OUTCOMES, bad, run


def check(count, seed, seconds):
    found = run(count, seed, seconds)
    harmful = {name: counts for name, counts in found.items() if bad({name: counts})}
    assert not harmful
    for name, counts in found.items():
        assert set(counts) == set(OUTCOMES)
        assert counts["refused"], name
    return sum(sum(counts.values()) for counts in found.values())


def test_mutated_files_are_read_or_refused_by_a_sentence():
    assert check(1_500, seed=0, seconds=600) == 1_500


def outcome(load, content=None):
    """What is said of a loader, given a run's record with other content."""
    one = next(one for one in mutations._known() if one.name == "config of dqn")
    with mutations._bait(), mutations._alarm(), mutations._watched(one.folder.parent):
        one = replace(one, load=load or one.load)
        found = mutations.feed(one, content or one.content, False, b"")[0]
    one.put(one.content)
    return found


def raising(error):
    def load(folder):
        raise error

    return load


def test_harm_is_seen(tmp_path, monkeypatch):
    assert outcome(raising(ValueError("a sentence"))) == "refused"
    assert outcome(raising(ValueError("two\nlines"))) == "traceback"
    assert outcome(raising(KeyError("steps"))) == "traceback"
    assert outcome(raising(RecursionError())) == "traceback"
    assert outcome(raising(ValueError(f"row 1: {SECRET}"))) == "leak"
    assert outcome(raising(mutations.Hang())) == "hang"
    assert outcome(lambda folder: (tmp_path / "a").write_text("")) == "outside"
    assert outcome(lambda folder: Path(folder / "a").write_text("")) == "different"


def test_a_payload_is_seen(monkeypatch):
    """Where settings of a file are believed, the module that they name is imported."""
    one = next(one for one in mutations._known() if one.name == "config of dqn")
    settings = b'"environment": {"task": "gym:%s:X-v0"}, "was": {' % CANARY.encode()
    content = one.content.replace(b'"environment": {', settings)
    assert outcome(None, content) == "refused"
    monkeypatch.setattr("midstride.tasks.registry.from_file", lambda values, *rest: values)
    assert outcome(None, content) == "code"


@pytest.mark.slow
def test_more_mutated_files_are_read_or_refused_by_a_sentence():
    assert check(50_000, seed=1, seconds=1200) > 10_000
