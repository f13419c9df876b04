"""A whole run on a served robot: what the runtime says happened is what the robot says happened."""

import csv
import json
import threading
from dataclasses import replace
from pathlib import Path

import gymnasium
import imageio.v3
import numpy as np
import pytest
from rich.console import Console

from midstride.cli import calibrate, main
from midstride.cli import run as cli
from midstride.knowledge import Layout
from midstride.latency_text import read_latency
from midstride.policies import as_policy
from midstride.realtime import addresses
from midstride.realtime.bodies import GymBody, TaskBody
from midstride.realtime.clock import VirtualClock, WallClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.drive import Resting, Run, drive, plan_of
from midstride.realtime.journal import Decision
from midstride.realtime.remote import RemoteRobot
from midstride.realtime.robot import RobotFault, Stamp
from midstride.realtime.thinker import ThreadThinker
from midstride.tasks.settings import TaskSettings
from tests.realtime.test_one_semantics import Odometer
from tests.realtime.test_server import TOKEN, served
from tests.test_examples import load as load_example

QUIET = Console(quiet=True)


def push(row):
    """Back and forth; by itself a module:callable of the command line."""
    return np.array([0.3 if row[0] < 0 else -0.3], np.float32)


def hanging(calls, ended):
    """A policy that does not come back from a call: after the three of warming up, and some."""
    left = iter(range(calls))

    def think(row):
        if next(left, None) is None:
            ended.wait()
        return push(row)

    return as_policy(think)


def after(decisions):
    return lambda run: len(run.decisions) < decisions


def test_the_runtime_and_the_robots_own_log_agree():
    ticks = []
    with served() as server:
        server.robot._on_tick = ticks.append
        with RemoteRobot(str(server.address), TOKEN) as robot:
            plan = plan_of(robot.declared, None, "concurrent", 0.01)
            run = drive(robot, as_policy(push), plan, WallClock(), after(40))
            final = robot.get_observation()
    assert run.ended == ""
    assert final.state in ("stopping", "stopped")
    taken = {one.number: one.taken_s for one in run.decisions if one.fate == "in force"}
    assert len(taken) >= 39
    followed = {}
    for tick in ticks:
        if tick.number >= 0 and tick.state == "armed":
            followed.setdefault(tick.number, tick.at_s)
    tick_s = 0.005
    for number, at_s in followed.items():  # of two within one tick only the later one is
        assert taken[number] - tick_s <= at_s <= taken[number] + 1e-6
    assert followed


def test_measuring_does_not_move_the_robot():
    ticks = []
    with served() as server:
        server.robot._on_tick = ticks.append
        with RemoteRobot(str(server.address), TOKEN) as robot:
            plan = plan_of(robot.declared, None, "concurrent", 0.01)
            before = robot.get_observation().target
            run = drive(Resting(robot), as_policy(push), plan, WallClock(), after(10))
    assert {one.fate for one in run.decisions} <= {"in force", "pending"}
    assert {tuple(tick.place) for tick in ticks} == {tuple(before)}


def test_a_robot_that_stops_ends_the_run_and_says_why():
    with served(watchdog_s=0.06) as server, RemoteRobot(str(server.address), TOKEN) as robot:
        plan = plan_of(robot.declared, None, "concurrent", 0.05)
        ended = threading.Event()
        run = drive(robot, hanging(3 + 5, ended), plan, WallClock(), after(10))
        ended.set()
    assert "no fresh command came for 60 ms" in run.ended


def test_whatever_ends_a_run_the_robot_is_told_to_stop():
    clock = VirtualClock()
    robot = ClockedRobot(TaskBody("cartpole"), clock, 5.0, limited=True, seed=0)
    robot.connect()
    plan = plan_of(robot.declared, None, "concurrent", 0.05)

    def stop(run):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(robot, as_policy(push), plan, clock, stop)
    assert robot.watchdog.state == "stopping"


def trained(**settings):
    s = TaskSettings(task="cartpole", **settings)
    envs = s.make(1)
    envs.close()
    return envs.layout, envs.timing


def test_a_policy_is_run_as_it_was_trained():
    declared = ClockedRobot(TaskBody("cartpole", 5), VirtualClock(), 0.2, limited=True).declared
    asked = {"latency": "120ms", "knowledge": ("pending_actions", "vector_to_go")}
    layout, timing = trained(**asked, stack_observations=2)
    plan = plan_of(declared, (layout, timing), "concurrent")
    assert plan.senses.layout.columns == layout.columns
    assert plan.pace.period_s == 0.05
    assert plan.workers == 3
    assert plan_of(declared, (layout, timing), "hold").pace.execution_s == 0.05
    with pytest.raises(ValueError, match="give the period that it had, --period 50ms"):
        plan_of(declared, trained(latency="50ms", execution="0"), "concurrent")
    assert plan_of(declared, None, "concurrent", 0.1).senses.layout.is_plain
    with pytest.raises(ValueError, match="does not say how long a period is"):
        plan_of(declared, None, "concurrent")


def test_a_robot_that_observes_something_else_is_refused():
    declared = ClockedRobot(TaskBody("cartpole"), VirtualClock()).declared
    layout = Layout(base=("angle",), action=("0",), controlled=None)
    with pytest.raises(ValueError, match="trained on the columns angle, the robot cartpole"):
        plan_of(declared, (layout, trained()[1]), "concurrent")
    scaled = trained(knowledge=("vector_to_go",))[0]
    scaled.units["vector_to_go"] = [0.5]
    with pytest.raises(ValueError, match=r"moves this robot by \[0.2\], and moved it by \[0.5\]"):
        plan_of(declared, (scaled, trained()[1]), "concurrent")


# --- The commands --------------------------------------------------------------------------------


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    return path


def options(kind, server, token, tmp_path, **more):
    return kind(
        policy="tests.realtime.test_drive:push", trust=True, robot=str(server.address),
        token=token, period="10ms", output=tmp_path / "out", **more,
    )  # fmt: skip


def test_run_leaves_a_log_a_record_a_page_and_a_film(token, tmp_path):
    with served() as server:
        cli.run(options(cli.Options, server, token, tmp_path, seconds=0.3, seed=1), QUIET)
    rows = list(csv.DictReader((tmp_path / "out/decisions.csv").read_text().splitlines()))
    record = json.loads((tmp_path / "out/run.json").read_text())
    assert len(rows) == record["counts"]["decisions"] > 0
    assert float(rows[0]["latency_s"]) > 0
    assert record["score"] is not None
    page = (tmp_path / "out/run.html").read_text()
    assert "<h2>Latency</h2>" in page
    assert "src=film.mp4" in page
    frames = imageio.v3.imread(tmp_path / "out/film.mp4")
    assert 0.2 < len(frames) / 25 < 1.0
    assert frames[0].std() > 10


SAC = str(Path(__file__).parent.parent / "policies/fixtures/sac.zip")


class ItsWorld(Odometer):
    """With the spaces that the policy in SAC was trained for."""

    def __init__(self):
        super().__init__(discrete=False)
        low, high = (np.array(bound, np.float32) for bound in ([-1, -0.25], [2, 0.75]))
        self.action_space = gymnasium.spaces.Box(low, high)


def test_a_stable_baselines_policy_runs_through_the_same_command(token, tmp_path):
    with served(body=GymBody(ItsWorld(), 0.02)) as server:
        asked = options(cli.Options, server, token, tmp_path, seconds=0.3)
        cli.run(replace(asked, policy=SAC, film=False), QUIET)
    rows = list(csv.DictReader((tmp_path / "out/decisions.csv").read_text().splitlines()))
    assert sum(row["fate"] == "in force" for row in rows) > 3
    assert len({row["sent"] for row in rows}) > 3


def test_a_policy_of_other_columns_arms_nothing(token, tmp_path):
    with served() as server:
        asked = options(cli.Options, server, token, tmp_path)
        with pytest.raises(ValueError, match="the policy observes 3 columns"):
            cli.run(replace(asked, policy=SAC), QUIET)
        assert server.robot.watchdog.state == "idle"


def test_calibrate_leaves_a_trace_that_trainings_take(token, tmp_path):
    with served() as server:
        calibrate.run(options(calibrate.Options, server, token, tmp_path, decisions=12), QUIET)
    model = read_latency(f"trace:{tmp_path / 'out'},up")
    assert len(model.values_s) >= 10
    assert TaskSettings(latency=f"trace:{tmp_path / 'out'},up", period="100ms").timing()


def test_after_a_fault_a_person_says_arm(token, tmp_path):
    with served() as server:
        with RemoteRobot(str(server.address), TOKEN) as robot:
            robot.arm()
            robot.send_action([np.nan], Stamp(0, 0.0))
        asked = options(cli.Options, server, token, tmp_path, seconds=0.05)
        with pytest.raises(ValueError, match=r"after a fault: an action must be of Box.*--arm"):
            cli.run(asked, QUIET)
        again = cli.Options(**{**asked.to_dict(), "arm": True})
        cli.run(again, QUIET)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run"], "needs POLICY"),
        (["run", "x.zip", "--token", "/none"], "no robot|there is no /none|x.zip"),
        (["robot", "dog"], "body must be one of cartpole, grasp"),
        (["robot", "grasp", "--actions", "5"], "a hand takes continuous actions"),
        (["robot", "cartpole", "--address", "tcp:1"], "is not the address of a robot"),
        (["robot", "cartpole", "--watchdog", "0"], "longer than 0 s"),
        (["calibrate", "x.zip", "--decisions", "1"], "from 10 to 100000"),
    ],
)
def test_what_is_wrong_is_one_sentence(args, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert any(part in told for part in says.split("|"))
    assert told.count("\n") == 1


def test_a_second_robot_at_an_address_leaves_the_first_ones_token(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "robot.token").write_text(TOKEN)
    with served(f"unix:{tmp_path}/robot.socket") as server:
        with pytest.raises(SystemExit):
            main(["robot", "cartpole"])
        with RemoteRobot(
            str(server.address), addresses.read_token(tmp_path / "robot.token")
        ) as robot:
            assert robot.get_observation().state == "idle"


def test_a_period_longer_than_the_watchdogs_time_is_refused():
    declared = ClockedRobot(TaskBody("cartpole"), VirtualClock(), 0.04, limited=True).declared
    assert plan_of(declared, None, "concurrent", 0.03)
    with pytest.raises(ValueError, match="stops without a fresh command for 40 ms, and a period"):
        plan_of(declared, None, "concurrent", 0.04)


def test_the_longest_silence_is_between_two_commands():
    times = [1.0, 1.1, 1.4]
    run = Run([Decision(k, t, t, t, taken_s=t, fate="in force") for k, t in enumerate(times)])
    run.began_s, run.watchdog_s = 0.9, 0.5
    assert run.longest_silence_s() == pytest.approx(0.3)
    assert cli.watchdog(run) == "300 ms of 500 ms"
    run.watchdog_s = None
    assert "nobody stops it" in cli.watchdog(run)


@pytest.mark.parametrize("latency", ["30ms", "jitter:30ms,10ms"])
def test_decisions_are_held_back_by_any_latency(latency):
    """Of thoughts that take no time, every latency is the one that was drawn."""
    clock = VirtualClock()
    model = read_latency(latency)
    coming = model.episode(np.random.default_rng(4))
    thinker = ThreadThinker(as_policy(push), clock, at_least=lambda: float(coming(1)[0]))
    due = []
    for number in range(5):
        thinker.think(number, 1.0, np.zeros(5, np.float32))
        assert thinker.wake.wait(10)
        due += [thought.due_s for thought in thinker.collect()]
    thinker.close()
    assert due == pytest.approx(1.0 + model.episode(np.random.default_rng(4))(5))


def test_a_robot_loses_nothing_on_purpose():
    declared = ClockedRobot(TaskBody("cartpole"), VirtualClock()).declared
    plan = plan_of(declared, None, "concurrent", 0.05)
    with pytest.raises(ValueError, match="not lost on purpose"):
        replace(plan, latency=read_latency("lost:0.5:10ms"))


def test_bars_are_as_high_as_counts():
    assert cli.histogram([]) == " " * 16
    assert cli.histogram([1.0, 1.0, 0.01], bins=2) == "▄█"
    assert Run().count("stale") == 0


def test_who_is_not_connected_is_told_so():
    with pytest.raises(RobotFault, match="connect first"):
        RemoteRobot("unix:x", TOKEN).get_observation()


@pytest.mark.slow
def test_the_example_of_the_page_runs():
    page = (Path(__file__).parents[2] / "docs/robot.md").read_text()
    block = page.split("```python\n")[1].split("```")[0]
    exec(compile(block, "docs/robot.md", "exec"), {})


@pytest.mark.slow
def test_the_example_goes_from_a_robot_to_a_margin(tmp_path, capsys):
    monkey = pytest.MonkeyPatch()
    monkey.chdir(tmp_path)
    main(
        [
            "train",
            "cartpole",
            "dqn",
            "--steps",
            "1500",
            "--no-video",
            "--evaluation-episodes",
            "1",
            "--name",
            "little",
        ]
    )
    monkey.undo()
    (folder,) = [path.parent for path in tmp_path.rglob("policy.safetensors")]
    found = load_example("robot_to_margin").main(folder, tmp_path / "trace.csv", 20, 2)
    assert list(found.under) == [f"trace:{tmp_path / 'trace.csv'},up"]
    assert "20 latencies in" in capsys.readouterr().out
