"""The belt's table and expectations, from episodes written by hand."""

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

from midstride.paper import conveyor
from midstride.sweep.disk import write_csv
from midstride.sweep.spec import expand, read_spec

TO_GO, PREVIOUS = conveyor.KNOWING


def shares(still, moving):
    """Success of eight trainings on a belt that stands, and at the speed that decides."""
    spread = np.linspace(-0.01, 0.01, 8)
    return {"0": still + spread, "0.2": moving + spread[::-1]}


FOUND = {
    conveyor.ORACLE: shares(0.98, 0.97),
    conveyor.RUN_AT: shares(0.5, 0.3),
    conveyor.HOLD: shares(0.95, 0.3),
    conveyor.UNAWARE: shares(0.9, 0.93),
    TO_GO: shares(0.97, 0.95),
    PREVIOUS: shares(0.97, 0.9),
}


def held(found, seeds=8):
    return {row["expected"]: row["held"] for row in conveyor.verdicts_of(found, seeds)}


def test_what_was_expected_is_held_against_what_was_found():
    rows = held(FOUND)
    within = "at 0.2 m/s within 5 points of a belt that stands"
    assert rows[f"{TO_GO}: {within}"] == "yes"
    assert rows[f"{PREVIOUS}: {within}"] == "not shown"
    assert rows[f"hold: at 0.2 m/s less than half of {TO_GO}"] == "yes"
    assert rows[f"{TO_GO}: at 0.2 m/s above unaware"] == "yes"
    assert rows[f"{PREVIOUS}: at 0.2 m/s above unaware"] == "not shown"
    assert rows[f"{TO_GO}: at 0.2 m/s above {conveyor.RUN_AT}"] == "yes"
    better = {**FOUND, conveyor.HOLD: shares(0.95, 0.5)}
    assert held(better)[f"hold: at 0.2 m/s less than half of {TO_GO}"] == "not shown"
    assert set(held(FOUND, seeds=3).values()) == {"too few"}
    assert held({TO_GO: FOUND[TO_GO]}).keys() == {f"{TO_GO}: {within}"}


def test_a_difference_is_told_in_points():
    rows = {row["expected"]: row["found"] for row in conveyor.verdicts_of(FOUND, 8)}
    apart = 100 * (FOUND[TO_GO]["0.2"] - FOUND[TO_GO]["0"])
    low, high = scipy.stats.ttest_1samp(apart, 0).confidence_interval()
    told = rows[f"{TO_GO}: at 0.2 m/s within 5 points of a belt that stands"]
    assert told == f"-2.0 points [{low:+.1f}, {high:+.1f}]"
    assert rows[f"hold: at 0.2 m/s less than half of {TO_GO}"] == "32%"


def test_tables_and_pictures_are_made_again_from_what_was_written(tmp_path):
    rows = [
        [arm, seed, speed, i, float(i < count), 2.0]
        for arm, count in ((conveyor.HOLD, 3), (TO_GO, 9))
        for seed in (100, 101)
        for speed in ("0", "0.2")
        for i in range(10)
    ]
    heading = ["kind", "seed", "belt_m_s", "episode", "success", "duration_s"]
    write_csv(tmp_path / "episodes.csv", heading, rows)
    curve = [[TO_GO, 100, steps, 0.5] for steps in (10, 20)]
    write_csv(tmp_path / "curves.csv", ["kind", "seed", "steps", "success"], curve)
    conveyor.reproduce(conveyor.Options(show=True, output=str(tmp_path)), Console(quiet=True))
    assert "| hold | 30.0 ± 0.0 % | 30.0 ± 0.0 % |" in (tmp_path / "table.md").read_text()
    for name in ("conveyor.png", "curves.png", "expectations.md"):
        assert (tmp_path / name).stat().st_size


def test_one_arm_with_too_few_trainings_is_too_few(tmp_path):
    """A training of eight belts grasped nearly always; hold has three."""
    rows = [
        [arm, seed, speed, i, float(i < count), 2.0]
        for arm, count, seeds in ((TO_GO, 9, 8), (conveyor.HOLD, 1, 3))
        for seed in range(seeds)
        for speed in ("0", "0.2")
        for i in range(10 + seed)
    ]
    heading = ["kind", "seed", "belt_m_s", "episode", "success", "duration_s"]
    write_csv(tmp_path / "episodes.csv", heading, rows)
    write_csv(tmp_path / "curves.csv", ["kind", "seed", "steps", "success"], [[TO_GO, 0, 1, 0.5]])
    conveyor.reproduce(conveyor.Options(show=True, output=str(tmp_path)), Console(quiet=True))
    text = (tmp_path / "expectations.md").read_text()
    assert text.count("too few") == 2
    assert "yes" not in text


def test_the_picture_has_a_line_for_each_policy():
    axes = conveyor.plot(FOUND).axes[0]
    assert [bars.get_label() for bars in axes.containers] == list(FOUND)
    heights = axes.containers[0].lines[0].get_ydata()
    assert heights == pytest.approx([98, 97])


def test_the_arms_differ_as_the_specification_says():
    named = {trial.arm: trial.training for trial in expand(read_spec("conveyor"), 1)}
    trained = (conveyor.ORACLE, conveyor.HOLD, conveyor.UNAWARE, TO_GO, PREVIOUS, conveyor.LONGER)
    assert tuple(named) == trained
    assert named[conveyor.ORACLE].environment.timing().latency_high_s == 0
    for arm in trained[1:]:
        assert named[arm].environment.timing().latency_high_s == 0.1
    assert all(
        (one.environment.mode == "hold") == (arm == conveyor.HOLD) for arm, one in named.items()
    )
    others = {arm: one.run.steps for arm, one in named.items() if one.run.steps != 96_000}
    assert others == {conveyor.HOLD: 32_000, conveyor.LONGER: 192_000}
    assert named[conveyor.UNAWARE].environment.knowledge == ()
    assert {one.environment.belt for one in named.values()} == {((0.0, 0.3), True)}
