"""What a checkpoint says of a training is checked before anything goes on from it."""

import numpy as np
import pytest

from midstride.disk.runs import Run, read_checkpoint

ABOUT = {
    "random": {}, "returns": [1.0], "seconds": 2.0, "clock": [{"physics": 1.0}, {"physics": 3}],
    "owed": 0.5, "losses": {"loss": [1.5, 3]}, "agent": {},
}  # fmt: skip


def written(folder, about):
    Run(folder, {}, "hash").save_checkpoint(40, {"agent.0": np.zeros(3)}, about)
    (path,) = (folder / "checkpoint").iterdir()
    return path


def test_what_was_written_is_read(tmp_path):
    arrays, about = read_checkpoint(written(tmp_path, ABOUT))
    assert arrays.keys() == {"agent.0"}
    assert about["losses"] == {"loss": (1.5, 3)}
    assert isinstance(about["losses"]["loss"][1], int)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("owed", -0.1), ("owed", 1e9), ("owed", "much"), ("losses", []), ("losses", {"loss": 1.0}),
        ("losses", {"loss": [1.0, 0]}), ("losses", {"loss": [None, 1]}), ("agent", "dqn"),
        ("returns", 1.0), ("clock", [{"physics": "long"}, {}]), ("random", None),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_a_sentence(tmp_path, name, bad):
    path = written(tmp_path, {**ABOUT, name: bad})
    with pytest.raises(ValueError, match="damaged") as raised:
        read_checkpoint(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ABOUT)
def test_what_is_missing_is_a_sentence(tmp_path, name):
    path = written(tmp_path, {key: value for key, value in ABOUT.items() if key != name})
    with pytest.raises(ValueError, match=f"damaged.*{name}"):
        read_checkpoint(path)
