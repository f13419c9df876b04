"""Catch's tables and expectations, from episodes written by hand."""

import numpy as np
import pytest
from rich.console import Console

from midstride.learn.agents import Training
from midstride.measure.evaluate import EVALUATION_SEED, Episode
from midstride.paper import bounce, dynamic, judged
from midstride.paper.dynamic import FROZEN, HOLD, KNOWING, LONGER_HOLD, RUN_LATE, TO_GO, UNAWARE, at
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


NOW = "100 ms"
FOUND = {
    FROZEN: group(10, 10, 10, 9),
    at(RUN_LATE, NOW): group(5, 4, 5, 4, within=5),
    at(HOLD, NOW): group(0, 0, 0, 0, within=9),
    at(LONGER_HOLD, "50 ms"): [each[10:] for each in group(0, 0, 0, 0)],
    at(UNAWARE, NOW): group(5, 4, 6, 5, within=4),
    at(KNOWING, NOW): group(10, 9, 10, 10),
    at(TO_GO, NOW): group(8, 7, 9, 6, within=6),
}


def test_throws_are_counted_beyond_hold_within_it_and_all():
    hold, to_go = at(HOLD, NOW), at(TO_GO, NOW)
    assert dynamic.share(FOUND, to_go, beyond_hold=True).tolist() == [0.8, 0.7, 0.9, 0.6]
    assert dynamic.share(FOUND, hold, beyond_hold=False).tolist() == [0.9] * 4
    assert dynamic.share(FOUND, hold).tolist() == [0.45] * 4
    assert dynamic.share(FOUND, at(LONGER_HOLD, "50 ms"), beyond_hold=True).tolist() == []
    rows = {row["policy"]: row for row in dynamic.detail_rows(FOUND)}
    assert rows[hold]["beyond hold's reach"] == "0.0 ± 0.0 %"
    # Student's t of 3 degrees of freedom: 3.182 x 12.9 % / 2
    assert rows[to_go]["beyond hold's reach"] == "75.0 ± 20.5 %"
    assert rows[to_go]["of all"] == "50%"
    assert rows[hold]["missed by, mean"] == "11.0 cm"
    assert rows[at(LONGER_HOLD, "50 ms")]["beyond hold's reach"] == "-"


def test_the_table_has_ways_to_think_by_latency():
    rows = {row["policy"]: row for row in dynamic.table_rows(FOUND)}
    assert list(rows) == [FROZEN, RUN_LATE, HOLD, LONGER_HOLD, UNAWARE, KNOWING, TO_GO]
    assert list(rows[HOLD]) == ["policy", "50 ms", NOW, "100 ms, beyond hold's reach"]
    assert list(rows[HOLD].values())[1:] == ["-", "45.0 ± 0.0 %", "0.0 ± 0.0 %"]
    assert list(rows[LONGER_HOLD].values())[1:] == ["100.0 ± 0.0 %", "-", "-"]
    assert rows[FROZEN]["50 ms"] == rows[FROZEN][NOW] == "98.8 ± 4.0 %"


def test_what_was_expected_is_held_against_what_was_found():
    held = {row["expected"]: row for row in dynamic.expected(FOUND, seeds=8)}
    assert held[f"{HOLD}, {NOW}: none beyond its reach, in every training"]["held"] == "yes"
    of_oracle = f"90% of {FROZEN}"
    assert held[f"{KNOWING}, {NOW}: {of_oracle}"]["held"] == "yes"
    assert held[f"{KNOWING}, {NOW}: {of_oracle} of throws beyond hold's reach"]["held"] == "yes"
    assert held[f"{TO_GO}, {NOW}: {of_oracle}"]["held"] == "not shown"
    assert held[f"{TO_GO}, {NOW}: {of_oracle} of throws beyond hold's reach"]["found"] == "77%"
    assert held[f"{KNOWING}, {NOW}: more than 4/3 of {UNAWARE}, {NOW}"]["held"] == "yes"
    assert held[f"{FROZEN}: more than 4/3 of {RUN_LATE}, {NOW}"]["held"] == "yes"
    assert held[f"{LONGER_HOLD}, 50 ms: {of_oracle}"]["held"] == "yes"
    assert len(held) == 8
    lucky = {**FOUND, at(HOLD, NOW): group(0, 1, 0, 0)}
    assert next(dynamic.expected(lucky, seeds=8))["held"] == "no"
    few = list(dynamic.expected(FOUND, seeds=4))[1:]
    assert {row["held"] for row in few} == {"too few"}


def test_what_is_hardly_chance_is_told_as_less_than_a_thousandth():
    clear = {FROZEN: group(*[10, 9] * 4), at(RUN_LATE, NOW): group(*[1, 0] * 4, within=0)}
    (row,) = [row for row in dynamic.expected(clear, seeds=8) if RUN_LATE in row["expected"]]
    assert row["p (Holm)"] == "< 0.001"


def test_of_bounces_hold_is_expected_to_catch_less_than_knowing():
    found = {**FOUND, at(HOLD, NOW): group(5, 5, 4, 3)}
    held = {row["expected"]: row["held"] for row in bounce.expected(found, seeds=8)}
    of = " of throws beyond hold's reach"
    assert held[f"{KNOWING}, {NOW}: more than 4/3 of {HOLD}, {NOW}{of}"] == "yes"
    assert held[f"{TO_GO}, {NOW}: 90% of {FROZEN}{of}"] == "not shown"
    assert len(held) == 6


def test_tables_and_pictures_are_made_again_from_what_was_written(tmp_path):
    rows = [
        [arm, seed, i, *(throw[name] for name in dynamic.MEASURES)]
        for arm, trainings in FOUND.items()
        for seed, throws in enumerate(trainings, 200)
        for i, throw in enumerate(throws)
    ]
    write_csv(tmp_path / "episodes.csv", ["kind", "seed", "episode", *dynamic.MEASURES], rows)
    write_csv(
        tmp_path / "curves.csv",
        ["kind", "seed", "steps", "success"],
        [[arm, 200, steps, 0.5] for arm in FOUND for steps in (10, 20)],
    )
    assert dynamic.read_found(tmp_path / "episodes.csv") == FOUND
    options = dynamic.Options(show=True, output=str(tmp_path))
    dynamic.reproduce(options, Console(quiet=True))
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {
        "episodes.csv", "curves.csv", "table.md", "details.md", "expectations.md", "catch.png",
        "curves.png",
    }  # fmt: skip
    assert "| unaware | - | 45.0 ± 6.5 % | 50.0 ± 13.0 % |" in (tmp_path / "table.md").read_text()
    assert "too few" in (tmp_path / "expectations.md").read_text()


def test_the_picture_has_a_panel_for_each_column_and_a_bar_for_each_policy():
    figure = dynamic.plot(FOUND)
    rows = [row["policy"] for row in dynamic.table_rows(FOUND)]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == rows
    assert len(figure.axes) == 3
    widths = [bar.get_width() for bar in figure.axes[2].patches]  # beyond hold's reach
    assert widths == pytest.approx([97.5, 45, 0, 50, 97.5, 75])


def test_trainings_of_a_seed_are_judged_on_the_same_throws_and_no_others_are(tmp_path, monkeypatch):
    seeds = []
    monkeypatch.setattr(judged, "load", lambda folder: None)

    def throw(policy, environment, episodes, seed):
        seeds.append((environment.task, environment.latency, episodes, seed))
        return [Episode(1.0, 1, 1.0, 0.0, dict.fromkeys(dynamic.MEASURES, 1.0))]

    monkeypatch.setattr(judged, "evaluate_in", throw)
    trainings = {
        arm: [Training.of("catch", latency=latency, seed=seed) for seed in (200, 201)]
        for arm, latency in ((FROZEN, "0"), (at(UNAWARE, NOW), "100ms"))
    }
    folders = {arm: [tmp_path / arm[:4] / str(k) for k in range(2)] for arm in trainings}
    for folder in (one for group in folders.values() for one in group):
        folder.mkdir(parents=True)
    grid = dynamic.Grid([], trainings, folders, {})
    found = dynamic.episodes_of(grid, Console(quiet=True))
    assert list(found) == [
        FROZEN,
        at(RUN_LATE, NOW),
        at(dynamic.RUN_HOLDING, NOW),
        at(UNAWARE, NOW),
    ]
    assert {(task, count) for task, _, count, _ in seeds} == {("catch", 64)}
    assert [latency for _, latency, *_ in seeds] == ["0"] * 2 + ["100ms"] * 6
    first = [EVALUATION_SEED + 100_000 * seed for seed in (200, 201)]
    assert [seed for *_, seed in seeds] == first * 4


def test_the_arms_differ_as_the_specification_says():
    named = {trial.arm: trial.training for trial in expand(read_spec("dynamic"), 1)}
    rows = {row for row in dynamic.ROWS if RUN_LATE not in row and row != dynamic.RUN_HOLDING}
    assert set(named) == {
        at(row, latency)
        for row in rows
        for latency in (dynamic.LATENCIES if not row.startswith(dynamic.OFTEN) else [NOW])
    }
    for arm, one in named.items():
        timing = one.environment.timing()
        latency = "0" if arm.endswith(FROZEN) else arm.rsplit(", ")[-1].replace(" ", "")
        assert one.environment.latency == latency
        assert (timing.mode == "hold") == arm.startswith("hold")
        knows_pending = "pending_actions" in one.environment.knowledge
        assert (timing.pending_slots > 0 and "unaware" not in arm) == knows_pending
    seconds = {
        arm: one.run.steps * one.environment.timing().longest_period_s
        for arm, one in named.items()
        if not arm.startswith("hold")  # it thinks on top of its period
    }
    assert np.ptp(list(seconds.values())) == pytest.approx(0)
    spec = {trial.arm: trial.training for trial in expand(read_spec("bounce"), 1)}
    assert set(spec) < set(named)
    for arm, one in spec.items():
        assert one.environment.task == "catch-bounce"
        assert one.environment.knowledge == named[arm].environment.knowledge
