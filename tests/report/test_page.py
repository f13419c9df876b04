"""Statistics against closed forms and SciPy; the report from the table alone."""

import json
import re

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from midstride.measure.statistics import (
    by_arm,
    compare,
    groups,
    iqm,
    paired,
)
from midstride.report.page import write_report
from midstride.sweep.disk import read_table


def test_iqm_is_scipys_trimmed_mean():
    rng = np.random.default_rng(0)
    for n in (2, 3, 4, 7, 32, 33):
        values = rng.normal(size=n)
        assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_pairs_are_compared_within_draws_and_corrected_together():
    low = np.arange(20.0)
    returns = {"worse": low, "good": low + 5, "noise": low + np.resize([1.0, -1.0, 0.0], 20)}
    first, second = compare([("good", "worse"), ("noise", "worse")], returns)
    # within pairs the difference is certain, although the arms overlap
    assert (first.difference.low, first.difference.high, first.better) == (5, 5, 1)
    assert (first.p_holm, first.verdict) == (0, "more")
    assert second.better == pytest.approx((7 + 0.5 * 6) / 20)
    assert second.p == pytest.approx(stats.ttest_rel(returns["noise"], low).pvalue)
    assert second.verdict == "no difference shown"


def test_groups_of_a_hyperparameter():
    assert groups(["25ms", "5ms", "0", "5ms"])[0] == ["0", "5ms", "25ms"]
    labels, which = groups([str(v) for v in np.linspace(1, 100, 40)])
    assert len(labels) == 4
    assert np.bincount(which).tolist() == [10, 10, 10, 10]


def table(folder, draws=6, failed=()):
    rng = np.random.default_rng(0)
    lines = ["arm,draw,status,mean_return,low,high,learning_rate,hidden,reason"]
    for draw in range(draws):
        rate = 10.0 ** rng.uniform(-4, -2)
        for arm, bonus in (("plain", 0), ("knows <it>", 100)):
            status = "failed" if (arm, draw) in failed else "done"
            value = "" if status == "failed" else 100 * draw + bonus
            reason = "out of luck" if status == "failed" else ""
            lines.append(f"{arm},{draw},{status},{value},,,{rate},{8 * (draw % 2 + 1)},{reason}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    about = {"name": "made up", "swept": ["learning_rate", "hidden"], "specification": "[x]"}
    (folder / "sweep.json").write_text(json.dumps(about))


def test_pairs_leave_out_draws_that_failed_anywhere(tmp_path):
    table(tmp_path, failed={("plain", 3)})
    draws, values = paired(by_arm(read_table(tmp_path)))
    assert draws == [0, 1, 2, 4, 5]
    assert (values[1] - values[0]).tolist() == [100] * 5


def test_the_report_is_one_page_made_from_the_table(tmp_path):
    table(tmp_path, failed={("plain", 3)})
    write_report(tmp_path, Console(quiet=True))
    page = (tmp_path / "report.html").read_text()
    assert "knows &lt;it&gt;" in page
    assert "<it>" not in page
    assert "out of luck" in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)  # nothing from elsewhere
    assert page.count("data:image/png;base64,") == 2
    arms = (tmp_path / "arms.csv").read_text().splitlines()
    assert arms[1].split(",")[:3] == ["plain", "5", "240.0"]
    pairs = (tmp_path / "pairs.csv").read_text().splitlines()[1].split(",")
    assert pairs[:3] == ["knows <it>", "plain", "100.0"]
    first = (tmp_path / "sorted.png").read_bytes()
    write_report(tmp_path, Console(quiet=True))
    assert (tmp_path / "sorted.png").read_bytes() == first


def test_too_little_for_a_report(tmp_path, capsys):
    table(tmp_path, draws=1)
    write_report(tmp_path, Console())
    assert "too few" in capsys.readouterr().out
    assert not (tmp_path / "report.html").exists()


def test_not_a_sweep(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"table\.csv is damaged: it has no column arm"):
        write_report(tmp_path, Console(quiet=True))
