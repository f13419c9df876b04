"""The command line, as a person uses it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from midstride.cli import COMMANDS, demo, main, show
from midstride.disk.runs import read_result
from midstride.learn.signals import Interrupted

TINY = ("--steps", "800", "--num-envs", "4", "--hidden", "16", "--learning-starts", "100",
        "--evaluate-every", "400", "--evaluation-episodes", "2")  # fmt: skip


def run(capsys, *args: str) -> tuple[int, str, str]:
    try:
        main(list(args))
        code = 0
    except SystemExit as exit:
        code = int(exit.code or 0)
    output = capsys.readouterr()
    return code, output.out, output.err


def python(code: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, **options
    )


# --- Help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [("--help",), ("latency", "--help"), ("describe", "--help"), ("train", "--help"),
     ("train", "cartpole", "dqn", "--help"), ("describe", "grasp", "--help")],
)  # fmt: skip
def test_help(capsys, args):
    code, out, _ = run(capsys, *args)
    assert code == 0
    assert "observation" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_itself(capsys, command):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"usage: midstride {command}" in out
    assert re.search(rf"examples?:\n  midstride {command}", out)


def test_help_of_a_training_has_exactly_the_options_of_its_task_and_agent(capsys):
    _, dqn, _ = run(capsys, "train", "cartpole", "dqn", "--help")
    assert "--n-step" in dqn
    assert "--actions" in dqn
    assert "--lstm-size" not in dqn
    assert "--object-set" not in dqn
    assert "(default: 100000)" in dqn
    _, grasp, _ = run(capsys, "train", "grasp", "--help")  # recommends QT-Opt
    assert "--demonstrations" in grasp
    assert "--object-set" in grasp
    assert "--n-step" not in grasp
    assert "(default: 48000)" in grasp  # of the run, as QT-Opt has it


def test_version(capsys):
    assert run(capsys, "--version")[1].startswith("midstride ")
    assert "--version" in run(capsys, "--help")[1]


def test_unknown_command_names_the_nearest_or_lists_the_known(capsys):
    code, out, err = run(capsys, "juggle")
    assert code == 2
    assert "describe" in out + err
    assert "did you mean train?" in run(capsys, "trian")[2]


# --- What is imported, and what is missing -------------------------------------------------------


def test_help_and_version_import_nothing_that_takes_long():
    code = (
        "import sys; from midstride.cli import main; "
        "main(['--help']); main(['--version']); print(' '.join(sys.modules))"
    )
    loaded = set(python(code).stdout.splitlines()[-1].split())
    assert "midstride.cli" in loaded
    assert not loaded & {"jax", "equinox", "mujoco", "matplotlib", "scipy", "imageio", "ray"}


def test_importing_midstride_is_light():
    """No learning framework, no dm_control, no plotting: `import midstride` stays quick."""
    loaded = set(python("import sys, midstride; print(' '.join(sys.modules))").stdout.split())
    assert "midstride" in loaded
    assert not loaded & {"torch", "ray", "tensorflow", "jax", "dm_control", "matplotlib.pyplot"}


@pytest.mark.parametrize(
    ("package", "args", "extra"),
    [
        ("jax", ["train", "cartpole"], "train"),
        ("matplotlib", ["report", "."], "measure"),
        ("dm_control", ["describe", "dmc:walker/walk"], "dmc"),
    ],
)
def test_a_missing_package_is_one_sentence(package, args, extra):
    code = f"import sys; sys.modules[{package!r}] = None; from midstride.cli import main; "
    result = python(f"{code} main({args!r})")
    assert result.returncode == 2
    assert result.stderr.startswith("midstride: ")
    assert result.stderr.endswith(f"needs {package}: pip install 'midstride[{extra}]'\n")
    assert result.stderr.count("\n") == 1


def test_no_traceback_from_the_installed_command():
    result = subprocess.run(
        [sys.executable, "-m", "midstride", "describe", "juggling"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


# --- Looking -------------------------------------------------------------------------------------


def test_latency(tmp_path, capsys):
    code, out, _ = run(
        capsys, "latency", "--latencies", "0", "60ms", "--episodes", "16", "--output", str(tmp_path)
    )
    assert code == 0
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")
    rows = [line.split("│")[1:4] for line in out.splitlines() if " ms │" in line]
    returns = {row[0].strip(): [float(cell.split("±")[0]) for cell in row[1:]] for row in rows}
    unaware, aware = zip(*returns.values(), strict=True)
    assert list(returns) == ["0 ms", "60 ms"]
    assert unaware[0] == aware[0] > 500
    assert unaware[1] < 0.75 * unaware[0]  # latency hurts
    assert aware[1] > 0.95 * aware[0]  # knowledge heals


def test_describe(capsys):
    code, out, _ = run(
        capsys, "describe", "cartpole", "--latency", "episode:0,25ms", "--execution", "25ms",
        "--knowledge", "vector_to_go",
    )  # fmt: skip
    assert code == 0
    assert "latency 0 ms to 25 ms" in out
    assert "vector_to_go:cart" in out
    assert "Agents that fit as they are: dqn, drqn, dau." in out


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("pendulum --actions continuous", ["from -1 to 1", "every 50 ms", "dqn, drqn, qtopt"]),
        ("grasp --image-size 16", ["16 x 16 x 3 uint8", "opening", "fit as they are: qtopt"]),
        ("grasp --mode blocking --observation state", ["come to rest", "object0:dx"]),
        ("gym:InvertedPendulum-v5 --latency 20ms", ["latency 20 ms", "observation:3", "dqn"]),
        ("dmc:cartpole/swingup --knowledge previous_action", ["previous_action:0", "dqn"]),
    ],
)
def test_describe_knows_every_kind_of_task(capsys, args, expected):
    code, out, err = run(capsys, "describe", *args.split())
    assert code == 0, err
    for text in expected:
        assert text in " ".join(out.split())


MINE = """
import gymnasium
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv

gymnasium.register("Mine-v0", entry_point=InvertedPendulumEnv, max_episode_steps=20)
"""


def test_ones_own_environment_in_the_current_folder(tmp_path, capsys, monkeypatch):
    (tmp_path / "my_environments.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    task = "gym:my_environments:Mine-v0"
    code, out, err = run(capsys, "describe", task, "--latency", "20ms")
    assert code == 0, err
    assert "at most 20 steps" in " ".join(out.split())
    code, out, err = run(capsys, "train", task, *TINY, "--steps", "200", "--name", "mine",
                         "--no-video", "--latency", "20ms")  # fmt: skip
    assert code == 0, err
    assert (tmp_path / "runs" / "mine" / "policy.json").exists()


# --- Training ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run that ended, made by the command."""
    runs = tmp_path_factory.mktemp("runs")
    main(["train", "pointmass", "dqn", *TINY, "--runs", str(runs), "--name", "mine",
          "--latency", "50ms"])  # fmt: skip
    return runs / "mine"


def test_train_evaluate_and_go_on(trained, capsys):
    made = {path.name for path in trained.iterdir()}
    assert {"curve.png", "video.mp4", "policy.safetensors", "result.json"} <= made
    assert (trained / "video.mp4").stat().st_size > 5000
    common = ("train", "pointmass", "dqn", *TINY, "--runs", str(trained.parent), "--name", "mine",
              "--latency", "50ms")  # fmt: skip
    code, _, err = run(capsys, *common)
    assert code == 2
    assert "--resume" in err
    code, out, _ = run(capsys, *common, "--resume", "--no-video")
    assert code == 0
    assert "midstride.load" in out
    code, out, _ = run(
        capsys, "evaluate", str(trained), "--latency", "0", "25ms", "--episodes", "3"
    )
    assert code == 0
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert rows == ["0", "25ms"]
    code, _, err = run(capsys, "evaluate", str(trained), "--latency", "100")
    assert code == 2
    assert "did you mean 100ms?" in err


def test_evaluate_policies_of_others(tmp_path, capsys, monkeypatch):
    """One of Stable-Baselines3, the same given a word of trust, and one with other statistics."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    folder = Path(__file__).parents[2] / "results" / "margins" / "policies"
    policy = str(folder / "ppo-inverted-pendulum.zip")
    (tmp_path / "balancing.py").write_text(
        "from midstride import load\n"
        f"class Policy:\n    batched = True\n    def __init__(self): self.acts = load({policy!r})\n"
        "    def __call__(self, rows): return self.acts(rows)\n"
    )
    np.savez(tmp_path / "stats.npz", mean=np.zeros(4), var=np.full(4, 1e8))  # blind, nearly
    common = ("--env", "InvertedPendulum-v5", "--episodes", "2")
    code, out, err = run(capsys, "evaluate", policy, *common, "--latency", "0", "40ms")
    assert code == 0, err
    of_zip = [line for line in out.splitlines() if line.startswith("│")]
    assert "1000" in of_zip[0]
    assert "1000" not in of_zip[1]
    trusting = ("balancing:Policy", "--trust", "--latency", "0", "40ms")
    code, out, err = run(capsys, "evaluate", *trusting, *common)
    assert code == 0, err
    assert [line for line in out.splitlines() if line.startswith("│")] == of_zip
    code, out, err = run(capsys, "evaluate", policy, *common, "--normalize", "stats.npz")
    assert code == 0, err
    assert "1000" not in out
    sys.modules.pop("balancing")


def test_evaluating_needs_no_jax(trained):
    code = (
        "import sys; from midstride.cli import main; "
        f"main(['evaluate', {str(trained)!r}, {str(trained)!r}, '--episodes', '2']); "
        "assert 'jax' not in sys.modules"
    )
    result = python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("│ 50ms") == 2


def test_a_run_goes_on_by_its_name_alone(trained, capsys):
    before = json.loads((trained / "config.json").read_text())
    go_on = ("train", "--resume", "mine", "--runs", str(trained.parent), "--no-video")
    code, _, err = run(capsys, *go_on)
    assert code == 0, err
    assert read_result(trained)["steps"] == 800
    code, _, err = run(capsys, *go_on, "--latency", "25ms", "--gamma-per-s", "0.5")
    assert code == 2
    assert "latency '50ms' and not '25ms'" in err
    assert "gamma_per_s 0.818 and not 0.5" in err
    code, _, err = run(capsys, *go_on, "--steps", "1_200")
    assert code == 0, err
    assert read_result(trained)["steps"] == 1200
    after = json.loads((trained / "config.json").read_text())
    assert after["run"] == before["run"] | {"steps": 1200}
    assert after["environment"] == before["environment"]


def test_several_seeds_side_by_side(tmp_path, capsys):
    common = ("--runs", str(tmp_path), "--no-video")
    code, out, err = run(capsys, "train", "pointmass", *TINY, "--seeds", "2", "--seed", "3",
                         "--name", "both", *common)  # fmt: skip
    assert code == 0, err
    assert {path.name for path in (tmp_path / "both").iterdir()} == {"seed3", "seed4", "curve.png"}
    assert "seed4" in out
    code, _, err = run(capsys, "train", "--resume", "both", *common)
    assert code == 2
    assert "say how many with --seeds" in err
    code, out, err = run(capsys, "train", "--resume", "both", "--seeds", "2", *common)
    assert code == 0, err
    assert "seed4" in out


def test_what_succeeds_is_shown_as_a_share(tmp_path, capsys):
    code, out, err = run(
        capsys, "train", "grasp", "--observation", "state", "--hidden-size", "16", "--samples", "8",
        "--batch-size", "8", "--num-envs", "4", "--scenes", "8", "--steps", "80",
        "--demonstrations", "80", "--offline-updates", "4", "--evaluate-every", "80",
        "--evaluation-episodes", "2", "--no-video", "--runs", str(tmp_path), "--name", "grasp",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads((tmp_path / "grasp" / "config.json").read_text())["agent"]["agent"] == "qtopt"
    assert re.search(r"grasp +│ \d+\.\d% +│ \d+\.\d% to \d+\.\d%", out)
    code, out, err = run(capsys, "evaluate", str(tmp_path / "grasp"), "--episodes", "2")
    assert code == 0, err
    assert "success" in out
    assert re.search(r"100ms +│ \d+\.\d% +│ \d+\.\d% to \d+\.\d%", out)


def test_an_interrupt_says_what_is_saved_and_how_to_go_on(tmp_path, capsys, monkeypatch):
    def train(training, folder, *args, **options):
        raise Interrupted.after(folder, 1234, signal.SIGINT)

    monkeypatch.setattr("midstride.learn.train.train", train)
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "train", "cartpole", "--name", "mine")
    assert code == 130
    assert "saved runs/mine after 1,234 steps" in err
    assert "go on with: midstride train --resume mine\n" in err
    code, _, err = run(capsys, "train", "cartpole", "--name", "mine", "--runs", "elsewhere")
    assert "go on with: midstride train --resume elsewhere/mine\n" in err


def test_an_interrupt_before_there_is_anything_says_so(tmp_path, capsys, monkeypatch):
    def train(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("midstride.learn.train.train", train)
    code, _, err = run(capsys, "train", "cartpole", "--runs", str(tmp_path))
    assert code == 130
    assert err == "midstride: interrupted before there was anything to save\n"


def test_a_film_that_cannot_be_made_loses_nothing(trained, capsys, monkeypatch):
    monkeypatch.setattr("midstride.report.film.film_run", lambda *args: False)
    code, out, _ = run(capsys, "train", "--resume", str(trained))
    assert code == 0
    assert "(curve.png)" in " ".join(out.split())
    code, _, err = run(capsys, "watch", str(trained))
    assert code == 2
    assert err.endswith("could not be filmed\n")


# --- Watching, and the demo ----------------------------------------------------------------------


def test_a_run_can_be_watched(trained, tmp_path, capsys):
    code, _, err = run(capsys, "watch", str(trained), "--episodes", "1", "--output", str(tmp_path))
    assert code == 0, err
    assert (tmp_path / "mine.mp4").stat().st_size > 5000


def test_a_script_can_be_watched(tmp_path, capsys):
    code, out, err = run(
        capsys, "watch", "grasp", "--episodes", "1", "--objects", "1", "--mode", "blocking",
        "--output", str(tmp_path),
    )  # fmt: skip
    assert code == 0, err
    assert re.search(r"│ 0 +│ yes +│", out)
    assert (tmp_path / "grasp-scripted-blocking.mp4").stat().st_size > 5000
    assert (tmp_path / "grasp-scripted-blocking.png").read_bytes().startswith(b"\x89PNG")


MEANS = {
    demo.FROZEN: 9000.0, demo.AS_IT_IS: 90.0, demo.ADAPTED: 8910.0, demo.UNAWARE: 180.0,
    demo.KNOWING: 9000.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            [
                "frozen world falls (1%)",
                "It is cured by adapting it, 20 s, from steps of the frozen world alone (99%)",
            ],
        ),
        ({}, ["knowing what is in flight helps: 100% with it, 2% without"]),
        ({demo.AS_IT_IS: 6300.0}, ["frozen world loses (70%)"]),
        ({demo.AS_IT_IS: 8990.0}, ["frozen world still stands (100%)"]),
        ({demo.ADAPTED: 900.0}, ["It is not cured by adapting it", "(10%)"]),
        ({demo.UNAWARE: 8900.0}, ["in flight hardly matters"]),
        ({demo.KNOWING: 20.0, demo.UNAWARE: 4500.0}, ["does not help here"]),
    ],
)
def test_the_demo_says_what_was_measured(changes, said):
    text = demo.conclusion(MEANS | changes, 20.0, 0)
    for part in said:
        assert part in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "1234"), (-56.7, "-57"), (9.996, "10"), (9.87654, "9.88"), (0.00123, "0.00123"),
     (0.0, "0"), (-0.5, "-0.5")],
)  # fmt: skip
def test_small_numbers_have_digits(value, text):
    assert show.number(value) == text
