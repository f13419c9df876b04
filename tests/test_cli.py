"""The command line, as a person uses it."""

import subprocess
import sys

import pytest

from midstride.cli import main


def run(capsys, *args: str) -> tuple[int, str, str]:
    try:
        main(list(args))
        code = 0
    except SystemExit as exit:
        code = int(exit.code or 0)
    output = capsys.readouterr()
    return code, output.out, output.err


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


@pytest.mark.parametrize(
    "args", [("--help",), ("latency", "--help"), ("describe", "--help"), ("train", "--help")]
)
def test_help(capsys, args):
    code, out, _ = run(capsys, *args)
    assert code == 0
    assert "observation" in out


BAD = {
    "train juggling": "unknown task 'juggling'",
    "train cartpole --latency 7ms": "nearest valid times are 5 ms and 10 ms",
    "train cartpole --target concurrent": "needs a latency above 0",
    "train cartpole --seeds 0": "seeds must be at least 1",
    "evaluate nowhere": "is not the folder of a run",
    "describe juggling": "unknown task 'juggling'",
    "describe cartpole --latency 60ms": "longer than the period of 50 ms",
    "describe cartpole --latency 7ms": "nearest valid times are 5 ms and 10 ms",
    "describe cartpole --latency -5ms": "at least 0 s",
    "describe cartpole --latency nan": "at least 0 s",
    "describe cartpole --latency soon": "'soon' is not a time",
    "describe cartpole --latency trace:none.csv": "cannot read the latency trace",
    "describe cartpole --knowledge magic": "unknown knowledge 'magic'",
    "describe cartpole --actions few": "whole number or 'continuous'",
    "describe cartpole --tick 0": "longer than 0 s",
    "latency --latencies 100ms": "longer than the period of 60 ms",
    "describe cartpole --latency 1e300": "too long to be counted",
    "describe cartpole --period 1e9": "too long to be counted",
    "describe cartpole --tick 1e-9": "too long to be counted",
    "latency --latencies": "at least one latency",
    "latency --seed -1": "seed must be at least 0",
    "latency --output /dev/null": "/dev/null",
    "latency --episodes 0": "episodes must be at least 2",
}


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(capsys, command):
    code, out, err = run(capsys, *command.split())
    assert code == 2
    assert not out
    assert BAD[command] in err
    assert err.startswith("midstride: ")
    assert err.count("\n") == 1


def test_train_evaluate_and_go_on(tmp_path, capsys):
    common = ("train", "pointmass", "--steps", "800", "--num-envs", "4", "--hidden", "16",
              "--learning-starts", "100", "--evaluate-every", "400", "--evaluation-episodes", "2",
              "--runs", str(tmp_path), "--name", "mine", "--latency", "50ms")  # fmt: skip
    code, out, _ = run(capsys, *common)
    assert code == 0
    assert "midstride.load" in out
    made = {path.name for path in (tmp_path / "mine").iterdir()}
    assert {"curve.png", "video.mp4", "policy.safetensors", "result.json"} <= made
    assert (tmp_path / "mine" / "video.mp4").stat().st_size > 5000
    code, _, err = run(capsys, *common)
    assert code == 2
    assert "--resume" in err
    code, out, _ = run(capsys, *common, "--resume", "--no-video")
    assert code == 0
    code, out, _ = run(
        capsys, "evaluate", str(tmp_path / "mine"), "--latency", "0", "25ms", "--episodes", "3"
    )
    assert code == 0
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert rows == ["0", "25ms"]
    code, _, err = run(capsys, "evaluate", str(tmp_path / "mine"), "--latency", "1s")
    assert code == 2
    assert "longer than the period" in err


def test_bad_configuration_is_explained(capsys):
    code, out, err = run(capsys, "train", "cartpole", "--gamma", "2")
    assert code == 2
    assert "gamma must be below 1, got 2" in out + err
    assert "Traceback" not in out + err


def test_version(capsys):
    assert run(capsys, "--version")[1].startswith("midstride ")


def test_unknown_command_lists_the_known(capsys):
    code, out, err = run(capsys, "juggle")
    assert code == 2
    assert "describe" in out + err


def test_no_traceback_from_the_installed_command():
    result = subprocess.run(
        [sys.executable, "-c", "from midstride.cli import main; main()", "describe", "juggling"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_importing_midstride_is_light():
    """No learning framework, no dm_control, no plotting: `import midstride` stays quick."""
    code = "import sys, midstride; print(' '.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert not loaded & {"torch", "ray", "tensorflow", "jax", "dm_control", "matplotlib.pyplot"}
