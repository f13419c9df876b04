"""Spread: what is written of it against means and intervals worked out by hand."""

import numpy as np
import pytest
from rich.console import Console

from midstride.paper import spread
from midstride.paper.spread import LOCAL, SPREAD, expected, render
from midstride.sweep.disk import write_csv


def test_the_same_quality_is_decided_by_intervals():
    near = {LOCAL: [0.90, 0.92, 0.94], SPREAD: [0.91, 0.93, 0.92]}
    assert [line["held"] for line in expected(near)] == ["yes"] * 3
    # Student's t for three: 4.303 standard errors of 0.02 / sqrt(3)
    assert "[87.0, 97.0] %" in list(expected(near))[1]["found"]
    far = {LOCAL: [0.90, 0.91, 0.92], SPREAD: [0.70, 0.71, 0.72]}
    assert [line["held"] for line in expected(far)] == ["no"] * 3
    assert next(expected(far))["found"].startswith("-20.0 points")


def test_tables_and_the_picture_come_from_what_was_written(tmp_path):
    kinds = ((LOCAL, 0.9), (SPREAD, 0.8))
    rows = [
        [k, s, i, float(i < 10 * share), 2.0]
        for k, share in kinds
        for s in (0, 1)
        for i in range(10)
    ]
    write_csv(tmp_path / "episodes.csv", ["kind", "seed", "episode", "success", "duration_s"], rows)
    lines = [
        [k, s, 1000 * j, 60.0 * j, 0.3 * j] for k, _ in kinds for s in (0, 1) for j in (1, 2, 3)
    ]
    write_csv(tmp_path / "curves.csv", list(spread.COLUMNS), lines)
    render(tmp_path, Console(quiet=True))
    table = (tmp_path / "table.md").read_text()
    assert "| one process | 2 | 90.0 ± 0.0 % | 2.00 s | 3.0 min |" in table
    assert "| on Ray | 2 | 80.0 ± 0.0 % |" in table
    assert (tmp_path / "spread.png").stat().st_size > 5000
    found = spread.read_lines(tmp_path / "curves.csv")
    assert found[SPREAD]["1"][-1] == pytest.approx((3000, 180, 0.9))
    assert np.isfinite(found[LOCAL]["0"]).all()
