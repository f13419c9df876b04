"""Files of strangers run no code and read no files but their own, unless they are trusted."""

import json
import os
import sys

import pytest

from midstride.cli import main
from midstride.disk.runs import Run
from midstride.latency import Trace
from midstride.latency_text import latency_text, parse_latency, read_latency
from midstride.learn.agents import Training
from midstride.sweep.spec import expand, read_spec
from midstride.tasks.registry import environment_from, environment_of
from midstride.traces import LARGEST_TRACE

STRANGE = "gym:midstride_payload:Payload-v0"


@pytest.fixture
def payload(tmp_path, monkeypatch):
    """A module that Python would find, and that leaves a mark when it is imported."""
    mark = tmp_path / "it-ran"
    module = f"import gymnasium, pathlib\npathlib.Path({str(mark)!r}).touch()\n"
    module += "gymnasium.register('Payload-v0', 'gymnasium.envs.mujoco.reacher_v5:ReacherEnv')\n"
    (tmp_path / "midstride_payload.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark
    sys.modules.pop("midstride_payload", None)


def strange_run(folder, **environment):
    """A run that a stranger sends."""
    training = Training.of("gym:Reacher-v5", "qtopt", value_range=(-10.0, 0.0))
    record = training.to_dict()
    record["environment"] |= environment
    Run(folder, record, training.hash).start()
    return folder


def says(capsys, *args):
    """What the command line says of an error."""
    with pytest.raises(SystemExit) as end:
        main([str(arg) for arg in args])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("command", [["evaluate"], ["watch"], ["train", "--resume"]])
def test_a_run_of_a_stranger_imports_nothing(payload, tmp_path, capsys, command):
    folder = strange_run(tmp_path / "stranger", task=STRANGE)
    said = says(capsys, *command, folder)
    assert "would import a module" in said
    assert "--trust" in said
    assert not payload.exists()


def test_a_specification_of_a_stranger_imports_nothing(payload, tmp_path, capsys):
    for text in (
        f'[common]\ntask = "{STRANGE}"\nagent = "qtopt"\n',
        f'[common]\ntask = {{ choices = ["cartpole", "{STRANGE}"] }}\n',
        f'[common]\n[arms.a]\n[arms.b]\ntask = "{STRANGE}"\n',
    ):
        (tmp_path / "spec.toml").write_text(text)
        said = says(capsys, "sweep", tmp_path / "spec.toml", "--trials", "1")
        assert "would import a module" in said
        assert not payload.exists()


def test_the_settings_of_a_policy_import_nothing(payload):
    with pytest.raises(ValueError, match="would import a module"):
        environment_from({"task": STRANGE})
    assert not payload.exists()


def test_what_is_trusted_or_typed_is_imported(payload, tmp_path, capsys):
    folder = strange_run(tmp_path / "mine", task=STRANGE)
    assert "holds no trained policy" in says(capsys, "evaluate", folder, "--trust")
    environment_of(folder, trust=True).make(1).close()
    assert payload.exists()
    payload.unlink()
    sys.modules.pop("midstride_payload")
    main(["describe", STRANGE])
    assert payload.exists()
    assert read_spec(str(_spec(tmp_path, task=STRANGE)), trust=True).common["task"] == STRANGE


def _spec(folder, **common):
    path = folder / "spec.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in common.items()]
    path.write_text("\n".join(["[common]", *lines]) + "\n")
    return path


# --- Traces

SECRET = "alice:secret:1000\n"


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.csv"
    path.write_text(SECRET)
    return path


@pytest.mark.parametrize(
    "latency", ["trace:{}", "trace:{},up", "trace:../secret.csv", "trace:link.csv,up",
                "lost:0.1:trace:{}", "trace:", "trace:.", "trace:/dev/zero,up", "trace:a\0b"],
)  # fmt: skip
def test_a_run_of_a_stranger_reads_no_other_file(secret, tmp_path, latency, capsys):
    folder = strange_run(tmp_path / "run", latency=latency.format(secret))
    (folder / "link.csv").symlink_to(secret)
    with pytest.raises(ValueError, match=r"latency|trace") as caught:
        environment_of(folder)
    assert "secret:1000" not in str(caught.value)
    said = says(capsys, "evaluate", folder)
    assert "secret:1000" not in said


def test_no_error_shows_what_is_in_a_file(secret, capsys):
    for name in (secret, "/etc/passwd"):
        for text in (f"trace:{name}", f"trace:{name},up"):
            said = says(capsys, "describe", "cartpole", "--latency", text)
            assert "row 1" in said
            assert "secret" not in said.replace(str(name), "")
            assert ":0:" not in said


def test_a_trace_is_a_file_that_ends(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(LARGEST_TRACE + 1)
    for name, message in {
        tmp_path / "pipe": "not a regular file",
        "/dev/zero": "not a regular file",
        tmp_path: "not a regular file",
        large: "too large",
    }.items():
        said = says(capsys, "describe", "cartpole", "--latency", f"trace:{name},up")
        assert "cannot read the latency trace" in said
        assert message in said


def test_a_run_keeps_the_values_of_its_trace(tmp_path, monkeypatch):
    """Wherever it is evaluated, and whatever becomes of the file."""
    path = tmp_path / "trace.csv"
    path.write_text("latency_ms\n12\n7.5\n31\n")
    monkeypatch.chdir(tmp_path)
    training = Training.of("cartpole", latency="trace:trace.csv,up")
    path.unlink()
    monkeypatch.chdir("/")
    assert training.environment.timing().latency_high_s == pytest.approx(0.035)
    record = json.loads(json.dumps(training.to_dict()))
    assert record["environment"]["latency"] == "replay:0.012,0.0075,0.031,up"
    again = Training.from_dict(record)
    assert again == training
    assert again.hash == training.hash
    assert len(Training.of("cartpole", latency="replay:" + "10ms," * 500 + "up").label) < 120


def test_traces_round_trip():
    for trace in (Trace((0.012, 0.5)), Trace((0.0123,), "up"), Trace((1e-5, 0.0), "nearest")):
        assert parse_latency(latency_text(trace)) == trace
    for text in ("replay:", "replay:up", "replay:1ms,down", "replay:nan"):
        with pytest.raises(ValueError, match=r"time|latency"):
            read_latency(text)


def test_a_specification_names_traces_beside_it(tmp_path, monkeypatch, secret):
    monkeypatch.chdir("/")
    folder = tmp_path / "specs"
    (folder / "traces").mkdir(parents=True)
    (folder / "traces" / "a.csv").write_text("0.01\n0.02\n")
    (trial,) = expand(read_spec(str(_spec(folder, latency="trace:traces/a.csv"))), 1)
    assert trial.training["latency"] == "replay:0.01,0.02,exact"
    for text in (f"trace:{secret}", "trace:../secret.csv"):
        with pytest.raises(ValueError, match="in its own folder only"):
            read_spec(str(_spec(folder, latency=text)))


# --- Grids


def test_a_grid_that_does_not_end_is_refused(tmp_path):
    names = ("n_step", "batch_size", "update_every", "replay_size")
    choices = ", ".join(map(str, range(1, 58)))
    lines = [f"{name} = {{ choices = [{choices}] }}" for name in names]
    (tmp_path / "spec.toml").write_text("\n".join(["[common]", *lines]))
    spec = read_spec(str(tmp_path / "spec.toml"))
    with pytest.raises(ValueError, match=r"has 1\.0556e\+07 trials, and at most 100,000 are run"):
        expand(spec, None)
    with pytest.raises(ValueError, match="at most 100,000"):
        expand(spec, 10**9)
