"""Table 2: its rows, what is kept of them, and what is said of them."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from midstride.cli import main
from midstride.paper import robot_grasps, table2
from midstride.paper.robot_grasps import Job, grasps_of, kept
from midstride.realtime.grasps import Grasp
from midstride.realtime.strange import Strange
from midstride.sweep.spec import expand, read_spec, slug

CONSOLE = Console(quiet=True)


def some(success, duration_s, count=10):
    return [Grasp(success, duration_s, 0.5, 20.0, 0.15, 8) for _ in range(count)]


ROWS = {
    table2.BLOCKING: [some(0.9, 4.0), some(1.0, 4.4)],
    table2.RUN_CONCURRENTLY: [some(0.7, 2.5), some(0.7, 2.5)],
    table2.CONCURRENT: [some(0.9, 2.0), some(0.96, 2.2)],
}


def test_the_specification_says_what_the_table_needs():
    spec = read_spec("table2")
    trials = {trial.arm: trial.training for trial in expand(spec, 1)}
    assert {arm for arm, _ in table2.ROWS.values()} == set(trials)
    blocking, concurrent = (trials[arm].environment for arm in (table2.BLOCKING, table2.CONCURRENT))
    assert (blocking.mode, blocking.knowledge) == ("blocking", ())
    assert (concurrent.mode, concurrent.knowledge) == ("concurrent", ("vector_to_go",))
    assert blocking.latency == concurrent.latency
    for said in ("at least 49 % shorter", "within 2 points"):
        assert said in spec.source


def test_what_was_expected_is_compared_with_what_came():
    found = table2.comparison(table2.CONCURRENT, ROWS)
    assert found["shorter by"] == "50.0%"
    assert found["success, points"].startswith("-2.0 ±")
    assert found["expected beforehand"].count("yes") == 2
    worse = {**ROWS, table2.CONCURRENT: [some(0.8, 2.5), some(0.8, 2.5)]}
    assert table2.comparison(table2.CONCURRENT, worse)["expected beforehand"].count("no") >= 2
    assert table2.comparison(table2.RUN_CONCURRENTLY, ROWS)["expected beforehand"] == ""


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_the_table_says_on_which_clock_and_how_many(clock, tmp_path):
    options = table2.Options(clock=clock, grasps=10)
    table2.write_table(ROWS, options, tmp_path, CONSOLE)
    text = (tmp_path / "table.md").read_text()
    assert f"on the {clock} clock" in text
    assert "a sketch: 2 trainings each" in text
    assert "| blocking | 95.0% ± " in text
    assert text.count("\n| ") == 5
    assert len((tmp_path / "grasps.csv").read_text().splitlines()) == 1 + 6 * 10


def test_a_fault_is_no_grasp_and_no_duration():
    broken = Grasp(0.0, 0.0, 0.0, 0.0, 0.0, 2, "the robot is stopped")
    group = [[*some(1.0, 4.0, 3), broken]]
    assert table2.means(group, "success") == pytest.approx([0.75])
    assert table2.means(group, "policy_duration_s") == pytest.approx([4.0])
    assert np.isnan(table2.means([[broken]], "jerk")).all()


def test_grasps_are_kept_one_by_one_and_gone_on_with(tmp_path, monkeypatch):
    spec = read_spec("table2")
    training = next(t.training for t in expand(spec, 1) if t.arm == table2.CONCURRENT)
    path = tmp_path / "grasps.jsonl"
    job = Job(training, tmp_path, "concurrent", "virtual", path)
    monkeypatch.setattr(robot_grasps, "load", lambda folder: None)
    tape = []

    def one_grasp(robot, policy, plan, clock, seed, longest):
        tape.append((seed, plan.seed, longest))
        if seed == 2 and len(tape) == 3:
            raise KeyboardInterrupt
        return Grasp(1.0, 2.0 + seed, 0.5, 20.0, 0.15, 8), None

    class Body:
        def __init__(self, settings, strange):
            assert settings is training.environment
            self.declared = None

    class Robot:
        declared = None

        def __init__(self, *args, **kwargs):
            pass

        def connect(self):
            pass

        def recall(self):
            return []

        def picture(self, index):
            raise AssertionError

    monkeypatch.setattr(robot_grasps, "HandBody", Body)
    monkeypatch.setattr(robot_grasps, "ClockedRobot", Robot)
    monkeypatch.setattr(robot_grasps, "grasp", one_grasp)
    monkeypatch.setattr(robot_grasps, "plan_of", lambda *args: _Plan())
    with pytest.raises(KeyboardInterrupt):
        list(grasps_of(job, 4, Strange()))
    assert len(kept(path, job.key(Strange()))) == 2
    found = list(grasps_of(job, 4, Strange()))
    assert [one.policy_duration_s for one in found] == [2.0, 3.0, 4.0, 5.0]
    assert tape == [(k, k, 20) for k in (0, 1, 2, 2, 3)]
    assert list(grasps_of(job, 4, Strange())) == found  # nothing is done again
    assert len(tape) == 5
    assert kept(path, job.key(replace(Strange(), friction=0.5))) == []  # of another body
    path.write_text(path.read_text()[:-30])
    with pytest.raises(ValueError, match="is damaged: remove it"):
        kept(path, job.key(Strange()))
    assert json.loads(path.read_text().splitlines()[0])["mode"] == "concurrent"


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["virtual", "wall"])
def test_the_whole_table_is_made_at_a_small_scale(clock, tmp_path, monkeypatch):
    """Training, the robot's process, its record, the table and the films."""
    monkeypatch.chdir(tmp_path)
    small = "steps=64 num_envs=8 demonstrations=64 auxiliary_updates=2 offline_updates=2 scenes=8 "
    small += "evaluate_every=64 evaluation_episodes=2 batch_size=8 max_steps=5"
    main(
        ["reproduce", "table2", "--clock", clock, "--seeds", "1", "--grasps", "3", "--workers", "1",
         "--output", "out", "--set", *small.split()]
    )  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "out" / clock / "grasps.csv").read_text().splitlines()))
    assert [row["row"] for row in rows] == [row for row in table2.ROWS for _ in range(3)]
    assert all(0 < float(row["policy_duration_s"]) < 60 or row["ended"] for row in rows)
    for row in table2.ROWS:
        assert (tmp_path / "out" / clock / f"{slug(row)}.mp4").stat().st_size > 1000


class _Plan:
    """Stands in for a plan: `dataclasses.replace` gives another one."""


def _replaced(plan, **values):
    found = _Plan()
    found.__dict__.update(values)
    return found


@pytest.fixture(autouse=True)
def _plans(monkeypatch):
    real = robot_grasps.replace
    monkeypatch.setattr(
        robot_grasps,
        "replace",
        lambda one, **values: (
            _replaced(one, **values) if isinstance(one, _Plan) else real(one, **values)
        ),
    )
