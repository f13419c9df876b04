"""Experiments leave tables, plots and provenance, whatever is trained."""

import csv
import json
from collections.abc import Callable

import numpy as np
import pytest
from rich.console import Console

from midstride.disk.runs import RESULT, Run, read_record, read_result
from midstride.learn.agents import Training
from midstride.learn.trainer import final_episodes
from midstride.measure.evaluate import Episode
from midstride.paper import EXPERIMENTS, awareness, controller, experiment, study, table1
from midstride.paper.awareness import RUN_AT
from midstride.paper.baselines import compared
from midstride.paper.baselines import expectations as expectations_of_baselines
from midstride.paper.judged import judged
from midstride.paper.latencies import each_latency
from midstride.paper.regimes import (
    LEARNED_S,
    SPECIALISTS,
    UNSEEN_S,
    expectations,
    verdicts,
)
from midstride.paper.study import GridOptions, Study, prepare, sketch, train, with_arms, with_set
from midstride.policies import load
from midstride.scale.jobs import Event
from midstride.settings import help_of, types_of
from midstride.sweep.spec import parse_spec, read_spec, slug

QUIET = Console(quiet=True)
TINY = (
    "task=pointmass", "steps=320", "num_envs=4", "hidden=8", "learning_starts=100",
    "batch_size=16", "evaluate_every=160", "evaluation_episodes=2",
)  # fmt: skip
TINY_GRASP = (
    "observation=state", "hidden_size=16", "samples=8", "batch_size=8", "num_envs=4", "scenes=8",
    "steps=160", "demonstrations=80", "offline_updates=4", "evaluate_every=160",
    "evaluation_episodes=2",
)  # fmt: skip


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def markdown(path):
    """First column -> the others."""
    lines = [line.strip("|\n").split("|") for line in path.open()]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines[2:]}


def reproduce(name, tmp_path, **options):
    kind, make, _ = experiment(name)
    folders = {"output": str(tmp_path / "out"), "runs": str(tmp_path / "runs")}
    make(kind(**{**folders, **options}), QUIET)
    return tmp_path / "out"


def pretend_to_train(monkeypatch, success: Callable[[Training], float]):
    """Every engine only pretends; the share of successes is `success(training)`."""
    trained = {}

    def engine(jobs):
        for i, job in enumerate(jobs):
            trained[job.name.partition(" #")[0]] = job.training
            share = success(job.training)
            won = (np.arange(20) < 20 * share).astype(float)
            measures = {"success": won.tolist(), "duration_s": (3.0 - won).tolist()}
            run = Run(job.folder, job.training.to_dict(), job.training.hash)
            run.start()
            run.log(steps=100, success=share, evaluation=share)
            run.finish(
                {
                    "mean_return": float(share),
                    "interval": [0.0, 1.0],
                    "returns": won.tolist(),
                    "measures": measures,
                    "seconds": 60.0,
                    "split_s": {"physics": 30.0},
                }
            )
            yield Event(i, "result", read_result(job.folder))

    for module in ("study", "figure2"):
        monkeypatch.setattr(f"midstride.paper.{module}.make_engine", lambda *given: engine)
    return trained


# --- The experiments by name


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_says_what_it_is_and_what_can_be_told(name):
    options, make, description = experiment(name)
    assert callable(make)
    assert len(description.splitlines()[0]) > 30
    assert set(help_of(options)) == set(types_of(options))
    options()  # every option has a default


def test_unknown_experiments_are_named():
    with pytest.raises(ValueError, match="unknown experiment tabel1; did you mean table1"):
        experiment("tabel1")


# --- What is other than the specification has it


def test_values_are_set_by_their_type():
    spec = with_set(
        read_spec("table1"), ["objects=3", "observation=state", "learning_rate=1e-3", "depth=false"]
    )
    expected = {"objects": 3, "observation": "state", "learning_rate": 1e-3, "depth": False}
    assert {name: spec.common[name] for name in expected} == expected
    assert with_set(read_spec("table1"), ["objects=2,4"]).common["objects"] == (2, 4)
    spec = with_set(read_spec("awareness"), ["hidden=64", "task=pendulum", "agent=drqn"])
    assert spec.common["hidden"] == (64,)
    assert with_set(read_spec("awareness"), ["agent=drqn", "lstm_size=8"]).common["lstm_size"] == 8
    drawn = with_set(read_spec("table1"), ["latency=episode:0,100ms"])
    assert drawn.common["latency"] == "episode:0,100ms"
    assert drawn.hash != read_spec("table1").hash


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("mode=blocking", "mode is what the arms of table1 differ in"),
        ("knowledge=vector_to_go", "knowledge is what the arms of table1 differ in"),
        ("seed=3", "counted up from first_seed"),
        ("objects", "set takes NAME=VALUE, got 'objects'"),
        ("=3", "set takes NAME=VALUE"),
        ("objects=many", "objects must be a whole number or 2 values"),
        ("scenes=0", "scenes must be a whole number of at least 1, got 0"),
        ("observe=state", "unknown setting observe; did you mean observation"),
        ("agent=ppq", "unknown agent 'ppq'"),
    ],
)
def test_what_cannot_be_set_is_named(text, error):
    with pytest.raises(ValueError, match=error):
        with_set(read_spec("table1"), [text])


def test_arms_are_called_by_name_or_by_how_it_begins():
    assert list(with_arms(read_spec("table1"), ["2", "5"]).arms) == [
        "2: blocking", "5: vector-to-go",
    ]  # fmt: skip
    assert list(with_arms(read_spec("grasp-latencies"), ["60ms"]).arms) == [
        "60ms, unaware", "60ms, vector-to-go",
    ]  # fmt: skip
    assert list(with_arms(read_spec("grasp-ablation"), ["no shifts"]).arms) == ["no shifts"]
    with pytest.raises(
        ValueError, match="table1 has no arm 10: choose from 1, 2, 3, 4, 5, 6, 7, 8, 9"
    ):
        with_arms(read_spec("table1"), ["2", "10"])


def test_a_folder_is_named_by_what_is_unusual():
    def names(**options):
        prepared = prepare("table1", GridOptions(**options))
        return prepared.output.as_posix(), prepared.folder.as_posix()

    assert names(first_seed=3) == ("results/table1", "runs/table1")
    assert names(set=("observation=state", "objects=3"), arms=("2", "5")) == (
        "results/table1-state-3-objects-arms-2-5",
        "runs/table1-state-3-objects",  # trainings are shared, whichever rows are asked for
    )
    assert names(set=("latency=episode:0,100ms",))[0] == "results/table1-latency_episode_0_100ms"
    assert len(names(set=TINY_GRASP)[0]) < 100


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("grasp-ablation", {"set": ("observation=state",)}, "is of what is done with images"),
        ("grasp-latencies", {"set": ("latency=60ms",)}, "latency is what the arms"),
        ("table1", {"seeds": 0}, "seeds must be a whole number of at least 1, got 0"),
        ("awareness", {"address": "auto"}, "add --engine ray"),
    ],
)
def test_bad_options_are_named(tmp_path, name, options, error):
    with pytest.raises(ValueError, match=error):
        reproduce(name, tmp_path, **options)
    assert not (tmp_path / "runs").exists()


def test_arms_that_are_the_same_are_named(tmp_path, monkeypatch):
    same = parse_spec("[arms.a]\ndouble = true\n[arms.b]", "same")
    monkeypatch.setattr("midstride.paper.study.read_spec", lambda name: same)
    with pytest.raises(ValueError, match="two of the arms to compare are the same"):
        reproduce("awareness", tmp_path)


def test_few_trainings_are_called_a_sketch():
    assert sketch(1) == " (a sketch: one training each, not 8)"
    assert sketch(8) == ""


# --- Awareness and latencies


def test_awareness(tmp_path):
    out = reproduce("awareness", tmp_path, set=TINY, seeds=1, first_seed=4)
    returns = rows(out / "returns.csv")
    kinds = [*read_spec("awareness").arms]
    kinds.insert(1, RUN_AT)
    assert list(dict.fromkeys(row["kind"] for row in returns)) == kinds
    assert {row["seed"] for row in returns} == {"4"}
    assert len(returns) == 5 * 8
    curves = rows(out / "curves.csv")
    assert [int(row["steps"]) for row in curves] == [160, 320] * 4
    table = markdown(out / "table.md")
    assert list(table) == kinds
    by_kind = {
        kind: [float(row["return"]) for row in returns if row["kind"] == kind] for kind in kinds
    }
    assert table["blocking"][1] == "1.00"
    assert float(table[RUN_AT][0]) == pytest.approx(np.mean(by_kind[RUN_AT]), rel=0.05)
    assert (out / "curves.png").stat().st_size > 5000
    record = json.loads((out / "config.json").read_text())
    assert record["config"]["seeds"] == [4]
    assert record["config"]["trainings"]["unaware"]["environment"]["latency"] == "50ms"
    assert {"command", "versions", "commit", "machine"} <= record.keys()

    (arm,) = (tmp_path / "runs").glob("*/trials/unaware/0004")
    (blocking,) = (tmp_path / "runs").glob("*/trials/blocking/0004")
    late = Training.from_dict(read_record(arm))
    found = [e.total for e in final_episodes(load(blocking), late.environment, late.run)]
    assert found == by_kind[RUN_AT]  # the frozen world's policy, where the unaware one lives
    again = [e.total for e in final_episodes(load(arm), late.environment, late.run)]
    assert again == by_kind["unaware"]  # and in the same episodes

    (out / "curves.png").unlink()
    (out / "config.json").write_text(json.dumps({**record, "commit": "of the trainings"}))
    reproduce("awareness", tmp_path, set=TINY, seeds=1, first_seed=4)
    assert (out / "curves.png").exists()  # drawing again does not touch provenance
    assert json.loads((out / "config.json").read_text())["commit"] == "of the trainings"


def test_without_blocking_there_is_nothing_to_run_late(tmp_path, monkeypatch):
    pretend_to_train(monkeypatch, lambda training: 0.5)
    monkeypatch.setattr(awareness, "run_at_latency", None)
    out = reproduce("awareness", tmp_path, arms=("unaware",), seeds=2)
    assert markdown(out / "table.md") == {"unaware": ["0.50 ± 0.00", "0.50, 0.50"]}


def test_a_failed_training_is_told_and_tried_again(tmp_path, monkeypatch):
    pretend_to_train(monkeypatch, lambda training: 0.5)
    pretending = study.make_engine("local", None, None)
    calls = []

    def engine(jobs):
        calls.append([job.name for job in jobs])
        for i, job in enumerate(jobs):
            if job.name.startswith("unaware"):
                yield Event(i, "error", "out of luck")
            else:
                yield from (event._replace(job=i) for event in pretending([job]))

    monkeypatch.setattr(study, "make_engine", lambda *given: engine)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"1 of 4 trainings failed \(unaware\)"):
            reproduce("awareness", tmp_path, seeds=1)
    assert [len(names) for names in calls] == [4, 1]


def test_latencies(tmp_path):
    out = reproduce("latencies", tmp_path, set=TINY, seeds=1, episodes=3)
    returns = rows(out / "returns.csv")
    assert len(returns) == 5 * 5 * 3
    late = [row for row in returns if row["kind"] == "blocking, run at the latency"]
    assert len({row["return"] for row in late}) > 3  # another at another latency
    assert {float(row["latency_s"]) for row in returns} == {0, 0.005, 0.01, 0.025, 0.05}
    assert list(markdown(out / "table.md")) == list(read_spec("latencies").arms)
    assert (out / "latencies.png").stat().st_size > 5000
    assert json.loads((out / "config.json").read_text())["config"]["options"]["episodes"] == 3


def test_regimes(tmp_path):
    out = reproduce("regimes", tmp_path, set=TINY, seeds=2, episodes=2)
    returns = rows(out / "returns.csv")
    assert len(returns) == 8 * 2 * 7 * 2
    latencies = {0, 0.005, 0.01, 0.025, 0.035, 0.04, 0.05}
    assert {float(row["latency_s"]) for row in returns} == latencies
    assert len(markdown(out / "table.md")) == 8
    expected = markdown(out / "expectations.md")
    assert len(expected) == 4 + 3 + 1 + 6
    assert {cells[-1] for cells in expected.values()} == {"too few"}
    assert (out / "regimes.png").stat().st_size > 5000
    (arm,) = (tmp_path / "runs").glob("*/trials/frozen-data-relabelled/0000")
    assert Training.from_dict(read_record(arm)).agent.hindsight_from == "0"


def test_baselines(tmp_path):
    """What fits a latency is trained there; what does not is left out; frozen policies run late."""
    arms = ("frozen", "knowing: previous action", "rtac", "bpql", "dau")
    settings = (*TINY, "actions=continuous", "period=50ms")
    options = {"set": settings, "arms": arms, "latencies": ("20ms",), "episodes": 2}
    out = reproduce("baselines", tmp_path, **options, seeds=1, claims=1)
    table = markdown(out / "table.md")
    fit = {"frozen", "knowing: previous action", "knowing: vector-to-go + t_AS", "bpql"}
    fit |= {"dau, knowing"}
    assert set(table) == {*fit, "frozen, run at the latency"}
    trained = {path.parent.name for path in (tmp_path / "runs").rglob("trials/*/0000")}
    assert trained == {slug(arm) for arm in fit}
    weights = {arm: cells[-1] for arm, cells in markdown(out / "costs.md").items()}
    assert int(weights["bpql, 20ms"].replace(",", "")) > 100
    assert list(markdown(out / "expectations.md")) == [
        "bpql: 90% of knowing: previous action, at 20ms"
    ]
    assert (out / "baselines.png").stat().st_size > 5000


def test_expectations_of_baselines_are_of_returns_above_doing_nothing():
    """At -100 for doing nothing, -10 is 90 % of 0, and 0 is more than -10."""
    spread = np.linspace(-0.5, 0.5, 8)
    means = {
        "knowing: previous action": {"50ms": spread},
        "rtac": {"50ms": spread - 8},
        "bpql": {"50ms": spread - 12, "150ms": spread},
        "unaware": {"50ms": spread - 90},
    }
    found = compared(list(expectations_of_baselines(means, -100.0)), trainings=8)
    held = {row["expected"]: (row["found"], row["held"]) for row in found}
    assert held == {
        "knowing: previous action: more than unaware, at 50ms": ("+90", "yes"),
        "rtac: 90% of knowing: previous action, at 50ms": ("92%", "yes"),
        "bpql: 90% of knowing: previous action, at 50ms": ("88%", "not shown"),
    }


def test_expectations_are_held_against_intervals():
    """Eight trainings that are 95 % of the specialist's, with little spread, and with much."""
    rng = np.random.default_rng(0)
    means = {
        arm: {at: 100 + rng.normal(0, 1, 8) for at in LEARNED_S} for arm in SPECIALISTS.values()
    }
    every = sorted((*LEARNED_S, *UNSEEN_S))
    means["mixture, relabelled"] = {at: 95 + rng.normal(0, 1, 8) for at in every}
    means["frozen data, relabelled"] = {at: 95 + rng.normal(0, 60, 8) for at in every}
    found = verdicts(list(expectations(means)), seeds=8)
    held = {row["expected"]: row["held"] for row in found}
    assert [
        held[f"mixture, relabelled: 90 % of the specialist at {at}"] for at in ("0 ms", "50 ms")
    ] == ["yes"] * 2
    assert held["frozen data, relabelled: 90 % of the specialist at 25 ms"] == "not shown"
    assert held["mixture, relabelled: 90 % of its neighbours at 35 ms, unseen"] == "yes"


def test_a_latency_means_at_evaluation_what_it_meant_in_training():
    """One that is always drawn, of those that were: t_AS stays scaled by the longest."""
    training = Training.of("pointmass", latency="episode:0,25ms,50ms", period="50ms")
    models = each_latency(training, [0, 0.025, 0.05])
    assert list(models) == [0, 0.025, 0.05]
    knows = training.with_(knowledge=("selection_time",), latency=models[0.025])
    envs = knows.environment.make(4)
    envs.reset(seed=0)
    observation, *_, info = envs.step(np.zeros(4, int))
    assert (info["latency_s"] == 0.025).all()
    assert observation[:, -1].tolist() == [0.5] * 4


# --- Figures


def test_figure(tmp_path, monkeypatch):
    source = (
        "[common]\ngamma_per_s = { low = 0.8, high = 0.99 }\n[arms.a]\n[arms.b]\ndouble = false"
    )
    monkeypatch.setattr("midstride.paper.study.read_spec", lambda name: parse_spec(source, name))
    pretend_to_train(monkeypatch, lambda t: t.run.seed / 10 + 0.05 * (not t["double"]))
    out = reproduce("figure2a", tmp_path, trials=4)
    found = [float(row["mean_return"]) for row in rows(out / "table.csv")]
    assert found == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35])
    record = json.loads((out / "config.json").read_text())
    assert record["config"]["specification"] == source
    assert record["seconds"] == 8 * 60
    pair = rows(out / "pairs.csv")[0]
    assert (pair["arm"], float(pair["difference"])) == ("b", pytest.approx(0.05))
    assert (float(pair["better"]), float(pair["p_holm"])) == (1, pytest.approx(0, abs=1e-9))
    assert (out / "report.html").exists()
    assert not (out / "trials").exists()


def test_controls_are_run_at_the_latency_of_their_draw(tmp_path, monkeypatch):
    source = """
simulated_s = 10
[common]
task = "pointmass"
num_envs = 4
[[strata]]
latency = "25ms"
execution = "25ms"
[[strata]]
latency = "50ms"
execution = "0"
[arms.plain]
[controls.blocking]
[[compare]]
arm = "plain"
other = "blocking, run at the latency"
expected = "less"
"""
    monkeypatch.setattr("midstride.paper.study.read_spec", lambda name: parse_spec(source, name))
    pretend_to_train(monkeypatch, lambda t: 0.1 if t["latency"] != "0" else 0.9)
    asked = []

    def judged(training, folder, name, **changes):
        asked.append((training["period"], changes["latency"], changes["execution"]))
        return {"returns": [0.8 + 0.01 * training.run.seed] * 4}

    monkeypatch.setattr("midstride.paper.figure2.judged", judged)
    out = reproduce("figure2a", tmp_path, trials=4)
    assert asked == [("50ms", "25ms", "25ms"), ("50ms", "50ms", "0")] * 2
    table = rows(out / "table.csv")
    late = [row for row in table if row["arm"] == "blocking, run at the latency"]
    assert [float(row["mean_return"]) for row in late] == pytest.approx([0.8, 0.81, 0.82, 0.83])
    assert [row["latency"] for row in late] == ["25ms", "50ms"] * 2
    claim = markdown(out / "claims.md")["plain"]
    assert claim[0] == "blocking, run at the latency"
    assert claim[5] == "as expected"
    assert (out / "sensitivity.md").read_text().count("plain") == 2
    assert "latency 50ms | 2 |" in (out / "strata.md").read_text()
    assert len(rows(out / "curves.csv")) == 8


def test_what_other_policies_get_elsewhere_is_made_once(tmp_path, monkeypatch):
    training = Training.of("pointmass", period="50ms")
    played = []

    def final_episodes(policy, environment, run):
        played.append(environment)
        return [Episode(float(k), 1, 1.0, 0.0) for k in range(3)]

    monkeypatch.setattr("midstride.paper.judged.final_episodes", final_episodes)
    monkeypatch.setattr("midstride.paper.judged.load", lambda folder: None)
    for _ in range(2):
        found = judged(training, tmp_path, "late", latency="25ms")
    assert found["returns"] == [0, 1, 2]
    assert [environment.latency for environment in played] == ["25ms"]
    judged(training, tmp_path, "late", latency="50ms")  # another question
    assert len(played) == 2


# --- Grasping


def test_table1_and_again_from_what_it_left(tmp_path, monkeypatch):
    """Two rows, two seeds, trained for a moment: everything that is promised is written."""
    filmed = []

    def film_run(run, path, episodes, seed, console, median):
        filmed.append(run)
        assert median
        for ending in (".mp4", ".png"):
            path.with_suffix(ending).write_text(run.parent.name)
        return True

    monkeypatch.setattr(table1, "film_run", film_run)
    options = {"set": TINY_GRASP, "seeds": 2, "arms": ("2", "5")}
    out = reproduce("table1", tmp_path, **options)
    assert {path.name for path in out.iterdir()} == {
        "table.md", "table.csv", "comparison.md", "smoothness.md", "claims.md", "episodes.csv",
        "household.csv", "table.png", "curves.csv", "curves.png", "cost.md", "config.json",
        "row2.mp4", "row2.png", "row5.mp4", "row5.png",
    }  # fmt: skip
    assert (out / "row2.mp4").read_text() == "2-blocking"
    assert (out / "row5.mp4").read_text() == "5-vector-to-go"
    table = markdown(out / "table.md")
    late, scripted = "2: blocking, run concurrently", ["scripted, blocking", "scripted, concurrent"]
    assert list(table) == ["2: blocking", late, "5: vector-to-go", *scripted]
    assert table["2: blocking"][-3] == "91.53 % ± 1.04"
    assert all(table[row][3] for row in ("2: blocking", late, "5: vector-to-go"))  # household
    assert table[late][-3] == ""
    assert list(markdown(out / "comparison.md")) == list(table)
    assert "nan" not in (out / "comparison.md").read_text()
    episodes = rows(out / "episodes.csv")
    assert len(episodes) == 3 * 2 * 8 + 2 * 8
    durations = {
        row["row"]: [float(e["duration_s"]) for e in episodes if e["row"] == row["row"]]
        for row in episodes
    }
    assert list(durations) == ["2", "2 run concurrently", "5", *scripted]
    assert max(durations["2 run concurrently"]) <= 6.0 + 1e-6  # 20 steps of 300 ms
    assert max(durations["2"]) > 6.0
    cost = (out / "cost.md").read_text()
    assert all(piece in cost for piece in ("demonstrations", "physics", "labelling", "fitting"))
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("result.json")}
    assert len(stamps) == 4
    reproduce("table1", tmp_path, **options)
    assert len(filmed) == 2  # not again
    kept = {p: p.read_bytes() for p in out.iterdir() if p.suffix == ".md"}
    for path in (*kept, out / "table.png"):
        path.unlink()
    reproduce("table1", tmp_path, show=True, **options)  # from the episodes alone
    assert all(p.read_bytes() == text for p, text in kept.items() if p.name != "cost.md")
    assert (out / "table.png").exists()
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps


def test_the_gap_at_each_latency_is_told(tmp_path, monkeypatch):
    shares = {("60ms", 0): 0.95, ("60ms", 1): 1.0, ("240ms", 0): 0.25, ("240ms", 1): 0.75}
    trained = pretend_to_train(monkeypatch, lambda t: shares[t["latency"], len(t["knowledge"])])
    out = reproduce("grasp-latencies", tmp_path, arms=("60ms", "240ms"))
    assert {(t["latency"], len(t["knowledge"])) for t in trained.values()} == set(shares)
    assert all(t["step_penalty"] == 0.01 for t in trained.values())
    assert {path.name for path in out.iterdir()} == {
        "table.md", "gap.md", "episodes.csv", "latencies.png", "curves.csv", "curves.png",
        "cost.md", "config.json",
    }  # fmt: skip
    gaps = markdown(out / "gap.md")
    assert list(gaps) == ["60ms", "240ms"]
    assert gaps["60ms"][1].startswith("+5.0 (")
    assert gaps["240ms"][1].startswith("+50.0 (")
    assert len(rows(out / "episodes.csv")) == 4 * 3 * 20
    assert json.loads((out / "config.json").read_text())["seconds"] == 4 * 3 * 60


def test_each_addition_of_ours_is_taken_away_once(tmp_path, monkeypatch):
    trained = pretend_to_train(monkeypatch, lambda t: 0.5 + 0.25 * t["averaged"])
    out = reproduce("grasp-ablation", tmp_path, seeds=2)
    usual = Training.of(
        "grasp", "qtopt", step_penalty=0.01, knowledge=("vector_to_go",), seed=1
    )  # row 5
    assert trained == {
        "as it is": usual,
        "no auxiliary head": usual.with_(auxiliary_weight=0.0),
        "no shifts": usual.with_(shift=0),
        "newest weights": usual.with_(averaged=False),
        "two rounds of search": usual.with_(acting_rounds=2),
    }
    success = {arm: cells[0].split()[0] for arm, cells in markdown(out / "table.md").items()}
    assert success == {k: "50.0%" if k == "newest weights" else "75.0%" for k in trained}
    changes = {arm: cells[1].split()[0] for arm, cells in markdown(out / "difference.md").items()}
    assert changes == {
        k: "-25.0" if k == "newest weights" else "+0.0" for k in trained if k != "as it is"
    }
    assert len(rows(out / "episodes.csv")) == 5 * 2 * 20


def test_a_training_of_another_experiment_is_taken_as_it_is(tmp_path, monkeypatch):
    """Row 5 of Table 1 is the ablation as it is."""
    trained = pretend_to_train(monkeypatch, lambda training: 0.5)
    reproduce("grasp-ablation", tmp_path, seeds=1, arms=("as it is",))
    assert list(trained) == ["as it is"]
    results = list(tmp_path.rglob(RESULT))
    trained.clear()
    spec = with_arms(read_spec("table1"), ["4", "5"])
    options = GridOptions(seeds=1)
    train(Study(spec, tmp_path / "out", tmp_path / "runs" / "table1", options), options, QUIET)
    assert list(trained) == ["4: unaware"]
    assert len(list(tmp_path.rglob(RESULT))) == len(results) + 2


def test_scripted_grasping(tmp_path, monkeypatch):
    monkeypatch.setattr("midstride.paper.scripted.ENVS", 4)
    monkeypatch.setattr("midstride.paper.scripted.OBJECT_SETS", ("train",))
    kind, make, _ = experiment("scripted")
    make(kind(episodes=3, output=str(tmp_path)), QUIET)
    found = rows(tmp_path / "episodes.csv")
    assert len(found) == 2 * 2 * 4
    won = [float(row["success"]) for row in found if row["policy"] == "privileged"]
    assert np.mean(won) > 0.8
    assert next(iter(markdown(tmp_path / "table.md"))) == "blocking, privileged, train"


# --- The controller that nobody trained


def test_latency_hurts_a_controller_and_knowledge_heals(tmp_path, capsys):
    controller.run(
        controller.Options(latencies=("0", "60ms"), episodes=16, output=str(tmp_path)), Console()
    )
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")
    assert len(rows(tmp_path / "returns.csv")) == 2 * 2 * 16
    lines = [
        line.split("│")[1:4] for line in capsys.readouterr().out.splitlines() if " ms │" in line
    ]
    returns = {line[0].strip(): [float(cell.split("±")[0]) for cell in line[1:]] for line in lines}
    unaware, aware = zip(*returns.values(), strict=True)
    assert list(returns) == ["0 ms", "60 ms"]
    assert unaware[0] == aware[0] > 500
    assert unaware[1] < 0.75 * unaware[0]
    assert aware[1] > 0.95 * aware[0]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"latencies": ()}, "at least one latency"),
        ({"episodes": 1}, "episodes must be a whole number of at least 2, got 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"latencies": ("100ms",)}, "longer than the period of 60 ms"),
    ],
)
def test_bad_options_of_the_controller_are_named(tmp_path, options, error):
    with pytest.raises(ValueError, match=error):
        controller.run(controller.Options(**options, output=str(tmp_path / "out")), QUIET)
    assert not (tmp_path / "out").exists()
