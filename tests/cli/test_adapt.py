"""`midstride adapt`: what it leaves, exit codes, wrong input as one sentence; the experiment."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from midstride.cli import main
from midstride.latency import Fixed
from midstride.learn.adapt import adapt
from midstride.learn.adapted import AdaptSettings
from midstride.measure.curve import Returns, grid, kept_around
from midstride.paper import adapt as study
from midstride.paper.adapt import Options, claim, reproduce, table, trained_at
from midstride.policies import load
from midstride.report.adapt import stands
from midstride.tasks.registry import environment_from
from midstride.timing import Timing

POLICIES = Path(__file__).parents[2] / "results" / "margins" / "policies"
PENDULUM = str(POLICIES / "sac-pendulum.zip")
TINY = ["--steps", "900", "--updates", "40", "--episodes", "2", "--rounds", "0", "--hidden", "8"]


def run(capsys, *args):
    code: object = 0
    try:
        main(args)
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()


BAD = {
    "adapt": "adapt needs POLICY",
    f"adapt {PENDULUM} --env Pendulum-v1": "adapt to which latency? give --latency 50ms",
    f"adapt {PENDULUM} --latency 50ms": "does not say what its environment is",
    f"adapt {PENDULUM} --latency 50ms --env cartpole": "adapt is for environments of Gymnasium",
    f"adapt {PENDULUM} --latency 60ms --env Pendulum-v1": "the ticks are the environment's own",
    f"adapt {PENDULUM} --latency 50ms --env Reacher-v5": "the policy observes 3 columns",
    f"adapt {PENDULUM} --latency 11s --env Pendulum-v1": "as long as an episode",
    f"adapt {PENDULUM} --latency 50ms --env Pendulum-v1 --noise 11": "noise needs levels from 0",
    f"adapt {PENDULUM} --latency 50ms --env Pendulum-v1 --data nowhere": "nowhere",
}


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *command.split())
    assert code == 2
    assert BAD[command] in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_what_is_left_is_a_policy_that_other_commands_take(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    args = ["adapt", PENDULUM, "--env", "Pendulum-v1", "--latency", "100ms", *TINY]
    code, out, err = run(capsys, *args)
    assert code in (0, 1), err
    record = json.loads((tmp_path / "adapted" / "adapt.json").read_text())
    assert code == (0 if record["took"] or not record["needed"] else 1)
    assert record["knowledge"] == ["previous_action", "pending_actions"]
    assert record["verdict"] in " ".join(out.split())
    assert [p["latency_s"] for p in record["after"]] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    frozen, before = record["frozen"]["mean"], record["before"][0]["mean"]
    assert frozen == before  # the same seeds
    code, _, err = run(capsys, *args, "--output", "adapted/adapt.png")
    assert (code, "is a file" in err) == (2, True)
    (tmp_path / "adapted" / "adapt.json").unlink()
    code, _, err = run(capsys, *args)
    assert (code, "holds a policy already" in err) == (2, True)
    assert (tmp_path / "adapted" / "adapt.png").read_bytes().startswith(b"\x89PNG")
    assert "sac-pendulum" in (tmp_path / "adapted" / "adapt.html").read_text()
    policy = load(tmp_path / "adapted")
    assert policy.observation_size == 5
    code, out, err = run(capsys, "evaluate", "adapted", "--episodes", "2")
    assert code == 0, err
    assert "0.1" in out


def test_settings_of_an_environment_know_what_is_pending():
    """A policy of two steps needs the decision in between, however its environment is given."""
    settings = AdaptSettings(steps=600, updates=4, rounds=0, episodes=2, hidden=(4,))
    environment = environment_from({"task": "gym:Pendulum-v1"})
    found = adapt(load(PENDULUM), environment, 0.15, settings=settings)
    assert found.knowledge == ("previous_action", "pending_actions")
    assert found.policy.observation_size == 3 + 1 + 2


def test_ranges_of_latencies():
    points = [
        Returns((v, v), Fixed(0.01 * k)) for k, v in enumerate([9.0, 8.0, 1.0, 8.0, 8.5, 0.0])
    ]
    assert kept_around(points, 5, 0.0) == (0.0, 0.01)
    assert kept_around(points, 5, 0.04) == (0.03, 0.04)
    assert kept_around(points, 5, 0.02) is None
    assert stands((0.0, 0.01)) == "10 ms"
    assert stands((0.03, 0.04)) == "only 30 ms to 40 ms"
    assert stands((0.04, 0.04)) == "only 40 ms"
    assert stands(None) == "none of these latencies"
    timing = Timing(Fixed(0.0), period_s=0.05, tick_s=0.01)
    assert grid(timing, 0.1) == pytest.approx(np.arange(11) * 0.01)
    assert len(grid(timing, 1.0)) == 11


# --- The experiment ------------------------------------------------------------------------------


def figures(task, latency, as_it_is, adapted, frozen=100.0):
    return {
        "figures": {
            "task": task, "policy": f"{task}-0", "latency": latency, "frozen_return": frozen,
            "floor": 0.0, "as_it_is": as_it_is, "data_alone": adapted - 0.1, "adapted": adapted,
            "rounds": 1,
        }
    }  # fmt: skip


def test_the_claim_counts_tasks_that_are_hurt_and_cured(tmp_path):
    cells = [figures(f"t{k}", "1", 0.1, 0.95) for k in range(4)]
    cells += [figures("stands", "1", 0.9, 1.0), figures("lost", "1", 0.2, 0.5)]
    text = claim(cells)
    assert "on 5 tasks (t0, t1, t2, t3, lost)" in text
    assert "on 4 of these (t0, t1, t2, t3): 5 were expected" in text
    cells.append(figures("t4", "1", 0.1, 0.9))
    assert "(t0, t1, t2, t3, t4): as expected (a sketch: 1 policies" in claim(cells)
    lines = [{"name": "t0-3-at-1", "at": 1, "mean_return": 80.0}]
    (tmp_path / "at.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = table(cells, trained_at(tmp_path / "at.jsonl"))
    row = next(row for row in rows if row["task"] == "t0")
    assert row["trained there, knowing"] == "0.80"
    assert row["kept, as it is"] == "0.10"
    assert row["policies with rounds"] == "1"


def test_cells_that_are_there_are_not_made_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies").mkdir()
    lines = [{"name": f"pendulum-{k}", "env": "Pendulum-v1", "seed": k} for k in (0, 1)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "policies" / "trained.jsonl").write_text(text)
    asked = []

    def made(cells, policies, jobs, console):
        for cell in cells:
            asked.append(cell["asked"]["policy"])
            yield {**cell, **figures("pendulum", cell["asked"]["latency"], 0.2, 0.9)}

    monkeypatch.setattr(study, "made", made)
    options = Options(policies="policies", output="found", latencies=("1",), seeds=(0,))
    console = Console(quiet=True)
    reproduce(options, console)
    assert asked == ["pendulum-0"]
    reproduce(Options(policies="policies", output="found", show=True), console)
    assert asked == ["pendulum-0"]
    reproduce(Options(policies="policies", output="found", latencies=("1",)), console)
    assert asked == ["pendulum-0", "pendulum-1"]
    assert (tmp_path / "found" / "adapt.png").exists()
    with pytest.raises(ValueError, match="leave out --show"):
        reproduce(Options(policies="policies", output="other", show=True), console)
    with pytest.raises(ValueError, match="no such policy"):
        reproduce(Options(policies="policies", output="found", tasks=("ant",)), console)
