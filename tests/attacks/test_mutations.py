"""Some mutated files through every loader; `python -m attacks` feeds a million."""

import pytest

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
    assert check(2_000, seed=0, seconds=600) == 2_000


@pytest.mark.slow
def test_more_mutated_files_are_read_or_refused_by_a_sentence():
    assert check(50_000, seed=1, seconds=1200) > 10_000
