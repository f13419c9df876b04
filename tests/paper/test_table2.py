"""Table 2: its rows, what is kept of them, and what is said of them."""

import csv
import json
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from midstride.cli import main
from midstride.measure.statistics import differs, holm
from midstride.paper import robot_grasps, table2
from midstride.paper.robot_grasps import Job, grasps_of, grasps_of_all, kept, write_kept
from midstride.realtime.grasps import Grasp
from midstride.realtime.robot import RobotFault
from midstride.realtime.strange import Strange
from midstride.sweep.spec import expand, read_spec, slug

CONSOLE = Console(quiet=True)


def some(success, duration_s, count=10, **more):
    return [
        Grasp(float(k < success), duration_s, 0.5, 20.0, 0.15, 8, 0.2, **more) for k in range(count)
    ]


ROWS = {
    table2.BLOCKING: [some(9, 4.0), some(10, 4.4)],
    table2.RUN_CONCURRENTLY: [some(7, 2.5), some(7, 2.5)],
    table2.CONCURRENT: [some(9, 2.0), some(9, 2.2)],
}


def near(success, duration_s):
    """Of eight trainings that hardly differ, the last one by a bit."""
    return [some(success, duration_s + 0.01 * k) for k in range(8)]


CLEAR = {
    table2.BLOCKING: near(9, 4.0),
    table2.RUN_CONCURRENTLY: near(7, 2.5),
    table2.CONCURRENT: near(9, 1.9),
}


def test_the_specification_says_what_the_table_needs():
    spec = read_spec("table2")
    trials = {trial.arm: trial.training for trial in expand(spec, 1)}
    assert {arm for arm, _ in table2.ROWS.values()} == set(trials)
    blocking, concurrent = (trials[arm].environment for arm in (table2.BLOCKING, table2.CONCURRENT))
    assert (blocking.mode, blocking.knowledge) == ("blocking", ())
    assert (concurrent.mode, concurrent.knowledge) == ("concurrent", ("vector_to_go",))
    assert blocking.latency == concurrent.latency
    seen = ("camera_jitter", "light_jitter", "colour_jitter")
    assert [getattr(blocking, name) for name in seen] == [0.02, 0.5, 0.2]
    assert [getattr(concurrent, name) for name in seen] == [0.02, 0.5, 0.2]
    assert {trial.training.run.steps for trial in expand(spec, 1)} == {64_000}
    words = " ".join(spec.source.replace("#", " ").split())
    for said in (
        "all grasps: concurrent with vector-to-go is at least 49 % shorter",
        "successful grasps: at least 37 % shorter",
        "within 2 points of blocking",
        "at most 2 points more of them than in blocking",
        "last twice as long in rest",
    ):
        assert said in words


def test_a_row_is_compared_with_blocking_with_intervals():
    found = table2.comparison(table2.CONCURRENT, ROWS)
    assert found["shorter by"].startswith("2.10 ± ")
    assert found["shorter by"].endswith(" s (50.0%)")
    assert found["success, points"].startswith("-5.0 ± ")


def came(rows):
    return [line["came"] for line in table2.verdicts(rows)]


def test_what_was_expected_is_answered_only_where_intervals_decide():
    assert came(CLEAR) == ["yes"] * 8
    few = {row: group[:1] for row, group in CLEAR.items()}
    assert came(few) == ["not decided"] * 8
    # Point estimates say the same here; two trainings a side do not decide it.
    two = {row: [group[0], some(9, 1.5 + len(row) / 10)] for row, group in CLEAR.items()}
    assert came(two)[0] == "not decided"
    worse = {**CLEAR, table2.CONCURRENT: near(8, 2.6)}
    assert came(worse)[:4] == ["no", "no", "no", "yes"]
    assert came({row: CLEAR[row] for row in (table2.BLOCKING, table2.CONCURRENT)}) == ["yes"] * 4


def test_holm_counts_all_lines():
    """The blocking policy is a bit longer when run concurrently: alone that would be decided."""
    rows = {**CLEAR, table2.BLOCKING: near(9, 4.0)}
    rows[table2.RUN_CONCURRENTLY] = [some(9 - (k > 5), 3.8 + 0.06 * k) for k in range(8)]
    lines = list(table2.expectations(rows))
    p = [differs(one.more, one.less, paired=False) for one in lines]
    said = [float(line["p (Holm)"]) for line in table2.verdicts(rows)]
    assert said == pytest.approx(holm(p), abs=1e-3)
    assert sum(said) > sum(p) + 0.1


def test_a_limit_of_decisions_does_not_pass_for_speed():
    """Nobody ends a grasp: cut off, blocking lasts twice as long; of successes nothing is said."""
    cut = {"is_cut_off": True}
    idle = {
        table2.BLOCKING: [some(0, 11.3 + 0.01 * k, **cut) for k in range(8)],
        table2.CONCURRENT: [some(0, 5.6 + 0.01 * k, **cut) for k in range(8)],
    }
    every, successes, *_ = table2.verdicts(idle)
    assert (every["came"], successes["came"]) == ("yes", "not decided")
    assert (table2.means(idle[table2.BLOCKING], "is_cut_off") == 1).all()


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_the_table_says_on_which_clock_and_how_many(clock, tmp_path):
    options = table2.Options(clock=clock, grasps=10)
    table2.write_table(ROWS, options, tmp_path, CONSOLE)
    text = (tmp_path / "table.md").read_text()
    assert f"on the {clock} clock" in text
    assert "a sketch: 2 trainings each" in text
    assert "| blocking | 95.0% ± " in text
    assert text.count("\n| ") == 5
    for column in ("of successes", "cut off", "largest t_AS", "missed cycles", "late ticks"):
        assert f"| {column} |" in text


def test_the_table_is_drawn_again_from_its_file(tmp_path):
    broken = {**ROWS, table2.CONCURRENT: [[*some(9, 2.0, 9), Grasp.broken("lost, it said")]] * 2}
    folder = tmp_path / "virtual"
    table2.write_grasps(broken, 7, folder / table2.GRASPS)
    assert len((folder / table2.GRASPS).read_text().splitlines()) == 1 + 6 * 10
    assert table2.read_grasps(folder / table2.GRASPS) == broken
    simulated = "arm,seed,success,policy_duration_s\nblocking,7,0.9,4.0\nblocking,8,0.8,5.0\n"
    (folder / table2.SIMULATED).write_text(simulated)
    table2.reproduce(table2.Options(clock="virtual", output=str(tmp_path), show=True), CONSOLE)
    assert "| concurrent, VTG | 90.0% ± 0.0% |" in (folder / "table.md").read_text()
    assert "| blocking | 85.0% ± 63.5% | 4.50 ± 6.35 s |" in (folder / "simulated.md").read_text()
    assert (folder / "comparison.md").exists()
    assert (folder / "expectations.md").exists()


def test_a_fault_is_no_grasp_and_no_duration():
    broken = Grasp.broken("the robot is stopped", 2)
    group = [[*some(3, 4.0, 3), broken]]
    assert table2.means(group, "success") == pytest.approx([0.75])
    assert table2.means(group, "policy_duration_s") == pytest.approx([4.0])
    assert np.isnan(table2.means([[broken]], "jerk")).all()


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job whose robot does nothing; what a grasp is, a test says."""
    spec = read_spec("table2")
    training = next(t.training for t in expand(spec, 1) if t.arm == table2.CONCURRENT)
    monkeypatch.setattr(robot_grasps, "load", lambda folder: None)

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
    monkeypatch.setattr(robot_grasps, "plan_of", lambda *args: _Plan())
    return Job(training, tmp_path, "concurrent", "virtual", tmp_path / "grasps.jsonl")


def test_grasps_are_kept_one_by_one_and_gone_on_with(job, monkeypatch):
    tape, path = [], job.kept

    def one_grasp(robot, policy, plan, clock, seed, longest):
        tape.append((seed, plan.seed, longest))
        if seed == 2 and len(tape) == 3:
            raise KeyboardInterrupt
        return Grasp(1.0, 2.0 + seed, 0.5, 20.0, 0.15, 8), None

    monkeypatch.setattr(robot_grasps, "grasp", one_grasp)
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


def test_a_robot_that_is_lost_is_a_fault_that_counts_and_the_next_grasp_has_another(
    job, monkeypatch
):
    robots = []

    def one_grasp(robot, policy, plan, clock, seed, longest):
        robots.append(robot)
        if seed == 1:
            raise RobotFault("the connection to the robot broke")
        return Grasp(1.0, 2.0, 0.5, 20.0, 0.15, 8), None

    bodies = []
    body = robot_grasps.HandBody
    monkeypatch.setattr(
        robot_grasps, "HandBody", lambda *args: bodies.append(body(*args)) or bodies[-1]
    )
    monkeypatch.setattr(robot_grasps, "grasp", one_grasp)
    found = list(grasps_of(job, 4, Strange()))
    assert [one.ended for one in found] == ["", "the connection to the robot broke", "", ""]
    assert [one.success for one in found] == [1, 0, 1, 1]
    assert len(bodies) == 2
    assert kept(job.kept, job.key(Strange())) == found


def test_two_commands_do_not_grasp_for_the_same_file(job, monkeypatch):
    one = Grasp(1.0, 2.0, 0.5, 20.0, 0.15, 8)
    monkeypatch.setattr(robot_grasps, "grasp", lambda *args: (one, None))
    first = grasps_of(job, 4, Strange())
    next(first)
    second = grasps_of(job, 4, Strange())
    next(second)  # that is kept already
    with pytest.raises(ValueError, match="another process is grasping in"):
        next(second)
    assert len(list(first)) == 3
    assert len(list(grasps_of(job, 4, Strange()))) == 4


def test_what_is_kept_was_filmed_before(job, monkeypatch):
    """A command that is killed while it films makes the grasp again, and its film."""
    one, tape = Grasp(1.0, 2.0, 0.5, 20.0, 0.15, 8), []
    monkeypatch.setattr(robot_grasps, "grasp", lambda *args: (one, None))

    def film(job, k, run, robot):
        tape.append((k, len(kept(job.kept, job.key(Strange())))))
        if tape == [(0, 0), (1, 1)]:
            raise KeyboardInterrupt

    monkeypatch.setattr(robot_grasps, "_film", film)
    job = replace(job, films=2)
    with pytest.raises(KeyboardInterrupt):
        list(grasps_of(job, 3, Strange()))
    assert len(list(grasps_of(job, 3, Strange()))) == 3
    assert tape == [(0, 0), (1, 1), (1, 1)]


@pytest.mark.slow
def test_jobs_side_by_side_come_back_in_order_and_an_error_ends_them_all(job, tmp_path):
    jobs = [replace(job, kept=tmp_path / f"{k}.jsonl") for k in range(3)]
    for k, one in enumerate(jobs):
        write_kept(one.kept, one.key(Strange()), some(1, float(k), count=4))
    found = grasps_of_all(jobs, 4, Strange(), 2, CONSOLE)
    assert [grasps[0].policy_duration_s for grasps in found] == [0, 1, 2]
    assert found == [kept(one.kept, one.key(Strange())) for one in jobs]
    jobs[1].kept.write_text("no grasps")
    with pytest.raises(ValueError, match="is damaged: remove it"):
        grasps_of_all(jobs, 4, Strange(), 2, CONSOLE)


def test_a_robots_process_ends_with_who_started_it(tmp_path):
    """Whoever holds the other end of its standard input; here it is let go of."""
    command = [
        sys.executable, "-m", "midstride", "robot", "cartpole", "--attached",
        "--address", f"unix:{tmp_path}/robot", "--token", f"{tmp_path}/token",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        assert b"cartpole at unix:" in process.stdout.readline()
        process.stdin.close()
        process.wait(timeout=60)
    finally:
        process.kill()
        process.stdout.close()
    assert not list(tmp_path.iterdir())


def test_a_process_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(robot_grasps, "_END_S", 0.1)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); "
    process = subprocess.Popen(
        [sys.executable, "-c", deaf + "signal.pause()"], stdout=subprocess.PIPE
    )
    process.stdout.readline()
    robot_grasps.end(process)
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(("clock", "robots"), [("virtual", 1), ("wall", 1), ("wall", 2)])
def test_the_whole_table_is_made_at_a_small_scale(clock, robots, tmp_path, monkeypatch):
    """Training, the robot's process, its record, the table and the films."""
    monkeypatch.chdir(tmp_path)
    small = "steps=64 num_envs=8 demonstrations=64 auxiliary_updates=2 offline_updates=2 scenes=8 "
    small += "evaluate_every=64 evaluation_episodes=2 batch_size=8 max_steps=5"
    main(
        ["reproduce", "table2", "--clock", clock, "--seeds", "1", "--grasps", "3", "--workers", "1",
         "--output", "out", "--robots", str(robots), "--set", *small.split()]
    )  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "out" / clock / "grasps.csv").read_text().splitlines()))
    assert [row["row"] for row in rows] == [row for row in table2.ROWS for _ in range(3)]
    assert [row["ended"] for row in rows] == [""] * 9  # no fault
    assert all(0 < float(row["policy_duration_s"]) < 60 for row in rows)
    assert all(0.05 < float(row["most_latency_s"]) < 2 for row in rows)
    for row in table2.ROWS:
        for k in range(3):
            assert (tmp_path / "out" / clock / f"{slug(row)}-{k}.mp4").stat().st_size > 1000


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


def test_a_process_of_a_pool_that_is_told_to_end_takes_no_other_job(job, monkeypatch):
    def told_to_end(*_):
        raise KeyboardInterrupt

    ended = []
    monkeypatch.setattr(robot_grasps, "grasps_of", told_to_end)
    monkeypatch.setattr(robot_grasps.os, "_exit", ended.append)
    robot_grasps._all_grasps(job, 1, robot_grasps.Strange())
    assert ended == [1]
