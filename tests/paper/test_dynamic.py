"""Catch's table and expectations, from episodes written by hand."""

import numpy as np
import pytest
from rich.console import Console

from midstride.paper import dynamic
from midstride.sweep.disk import write_csv
from midstride.sweep.spec import expand, read_spec


def training(beyond, within):
    """Ten throws beyond hold's reach and ten within it, of which so many are caught."""
    rows = [(True, k < beyond) for k in range(10)] + [(False, k < within) for k in range(10)]
    return [
        {
            "beyond_hold": float(far), "success": float(caught), "jerk": 1000.0,
            "reach_error_m": 0.0 if caught else 0.2,
        }
        for far, caught in rows
    ]  # fmt: skip


def group(*counts, within=10):
    return [training(count, within) for count in counts]


FOUND = {
    dynamic.FROZEN: group(10, 10, 10, 9),
    dynamic.RUN_AT: group(5, 4, 5, 4),
    dynamic.HOLD: group(0, 0, 0, 0, within=9),
    dynamic.UNAWARE: group(5, 4, 6, 5),
    dynamic.PREVIOUS: group(10, 9, 10, 10),
    dynamic.TO_GO: group(8, 7, 9, 6),
}


def test_throws_are_counted_beyond_hold_within_it_and_all():
    assert dynamic.share(FOUND, dynamic.TO_GO).tolist() == [0.8, 0.7, 0.9, 0.6]
    assert dynamic.share(FOUND, dynamic.HOLD, beyond_hold=False).tolist() == [0.9] * 4
    assert dynamic.share(FOUND, dynamic.HOLD, beyond_hold=None).tolist() == [0.45] * 4
    rows = {row["policy"]: row for row in dynamic.table_rows(FOUND)}
    assert rows[dynamic.HOLD]["beyond hold's reach"] == "0.0 ± 0.0 %"
    # Student's t of 3 degrees of freedom: 3.182 x 12.9 % / 2
    assert rows[dynamic.TO_GO]["beyond hold's reach"] == "75.0 ± 20.5 %"
    assert rows[dynamic.HOLD]["missed by, mean"] == "11.0 cm"


def test_what_was_expected_is_held_against_what_was_found():
    held = {row["expected"]: row for row in dynamic.expected(FOUND, seeds=8)}
    assert held["hold: none, in every training"]["held"] == "yes"
    oracle = "90% of the frozen world's (oracle)"
    assert held[f"{dynamic.PREVIOUS}: {oracle}"]["held"] == "yes"
    assert held[f"{dynamic.TO_GO}: {oracle}"]["held"] == "not shown"
    assert held[f"{dynamic.TO_GO}: {oracle}"]["found"] == "77%"
    assert held[f"{dynamic.PREVIOUS}: more than 4/3 of {dynamic.UNAWARE}"]["held"] == "yes"
    lucky = {**FOUND, dynamic.HOLD: group(0, 1, 0, 0)}
    assert next(dynamic.expected(lucky, seeds=8))["held"] == "no"
    few = list(dynamic.expected(FOUND, seeds=4))[1:]
    assert {row["held"] for row in few} == {"too few"}


def test_tables_and_pictures_are_made_again_from_what_was_written(tmp_path):
    rows = [
        [arm, seed, i, *(throw[name] for name in dynamic.MEASURES)]
        for arm, trainings in FOUND.items()
        for seed, throws in enumerate(trainings, 100)
        for i, throw in enumerate(throws)
    ]
    write_csv(tmp_path / "episodes.csv", ["kind", "seed", "episode", *dynamic.MEASURES], rows)
    write_csv(
        tmp_path / "curves.csv",
        ["kind", "seed", "steps", "success"],
        [[arm, 100, steps, 0.5] for arm in FOUND for steps in (10, 20)],
    )
    assert dynamic.read_found(tmp_path / "episodes.csv") == FOUND
    options = dynamic.Options(show=True, output=str(tmp_path))
    dynamic.reproduce(options, Console(quiet=True))
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {
        "episodes.csv", "curves.csv", "table.md", "expectations.md", "catch.png", "curves.png",
    }  # fmt: skip
    assert "| unaware | 50.0 ± 13.0 % |" in (tmp_path / "table.md").read_text()
    assert "too few" in (tmp_path / "expectations.md").read_text()


def test_the_picture_has_a_bar_for_each_policy():
    axes = dynamic.plot(FOUND).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(FOUND)
    widths = [bar.get_width() for bar in axes.patches]
    assert widths[:2] == pytest.approx([97.5, 100])


def test_the_arms_differ_as_the_specification_says():
    spec = read_spec("dynamic")
    named = {trial.arm: trial.training for trial in expand(spec, 1)}
    trained = (
        dynamic.FROZEN, dynamic.HOLD, dynamic.UNAWARE, dynamic.PREVIOUS, dynamic.TO_GO,
        dynamic.FAST_UNAWARE, dynamic.FAST_KNOWING,
    )  # fmt: skip
    assert tuple(named) == trained
    assert named[dynamic.FROZEN].environment.latency == "0"
    assert named[dynamic.HOLD].environment.mode == "hold"
    seconds = {
        arm: one.run.steps * one.environment.timing().longest_period_s
        for arm, one in named.items()
        if arm != dynamic.HOLD  # it thinks on top of its period
    }
    assert np.ptp(list(seconds.values())) == pytest.approx(0)
    timing = named[dynamic.FAST_KNOWING].environment.timing()
    assert timing.latency_high_s == 2 * timing.period_s
    assert timing.pending_slots == 1
