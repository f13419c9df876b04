"""What cannot fit into memory is refused before it starts, and says what would fit."""

from pathlib import Path

import pytest

from midstride.cli import main
from midstride.learn import memory
from midstride.learn.agents import Training
from midstride.learn.memory import available_bytes
from midstride.learn.train import train
from midstride.scale.jobs import reason

MEMINFO = "MemTotal:       24000000 kB\nMemFree:         100 kB\nMemAvailable:   {} kB\n"


def machine(root: Path, available_kb: int = 4_000_000, **files: object) -> Path:
    """A file system that tells about memory; `__` in names stands for a slash."""
    everything = {"proc__meminfo": MEMINFO.format(available_kb), **files}
    for name, content in everything.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(content))
    return root


def test_what_is_available_without_limits(tmp_path):
    assert available_bytes(machine(tmp_path)) == 4_000_000 * 1024
    assert available_bytes(tmp_path / "elsewhere") is None  # no Linux


def test_a_containers_limit_counts_and_so_does_that_of_the_group_around_it(tmp_path):
    groups = {
        "proc__self__cgroup": "0::/job/step\n",
        "sys__fs__cgroup__job__memory.max": 3 * 10**9,
        "sys__fs__cgroup__job__memory.current": 2 * 10**9,
        "sys__fs__cgroup__job__memory.stat": "anon 5\ninactive_file 300000000\n",
        "sys__fs__cgroup__job__step__memory.max": "max\n",
        "sys__fs__cgroup__job__step__memory.current": 2 * 10**9,
    }
    assert available_bytes(machine(tmp_path, **groups)) == 1_300_000_000


def test_the_older_groups_count_too(tmp_path):
    groups = {
        "proc__self__cgroup": "3:cpu,cpuacct:/x\n2:memory:/docker/abc\n",
        "sys__fs__cgroup__memory__memory.limit_in_bytes": 2**63 - 4096,
        "sys__fs__cgroup__memory__memory.usage_in_bytes": 10**9,
        "sys__fs__cgroup__memory__docker__abc__memory.limit_in_bytes": 500,
        "sys__fs__cgroup__memory__docker__abc__memory.usage_in_bytes": 600,
    }
    assert available_bytes(machine(tmp_path, **groups)) == 0


def test_this_machine_has_some():
    found = available_bytes()
    assert found is None or found > 10**7


def test_a_replay_that_cannot_fit_is_refused_with_what_would(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**6)
    fits = Training.of("pointmass", steps=5_000, num_envs=4, hidden=(8,), replay_size=10**9,
                       evaluate_every=10**6, evaluation_episodes=1)  # fmt: skip
    with pytest.raises(ValueError, match=r"replay_size 20,000 needs 2\.4 MB of memory, and 1 MB"):
        train(fits.with_(steps=10**6, replay_size=20_000), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    # Only what will be filled counts: 15 columns of float32, twice, for 5,000 steps.
    with pytest.raises(ValueError, match="at most 8,333 fit"):
        train(fits.with_(steps=9_000, replay_size=10_000), tmp_path / "run")
    assert train(fits.with_(replay_size=10_000), tmp_path / "run")["steps"] == 5_000


def test_a_replay_that_the_system_refuses_names_its_setting(tmp_path):
    huge = Training.of("pointmass", replay_size=10**12)
    with pytest.raises(ValueError, match="replay_size 1,000,000,000,000 "):
        train(huge, tmp_path / "run")


@pytest.mark.parametrize("task", ["pointmass", "gym:InvertedPendulum-v5", "grasp"])
def test_environments_that_cannot_fit_are_refused_before_they_are_made(
    task, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**8)
    with pytest.raises(SystemExit) as end:
        main(["train", task, "--num-envs", "50000", "--runs", str(tmp_path)])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("midstride: num_envs 50,000 needs about ")
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_too_little_memory_is_a_sentence(capsys, monkeypatch):
    def run(args):
        raise MemoryError(*args)

    monkeypatch.setattr("midstride.cli._run", run)
    for args, says in (
        ([], "midstride: there is not enough memory\n"),
        (["Unable to allocate 3 GiB"], "midstride: there is not enough memory: Unable to "),
    ):
        with pytest.raises(SystemExit) as end:
            main(args)
        assert end.value.code == 2
        assert capsys.readouterr().err.startswith(says)
    assert reason(MemoryError()) == "there is not enough memory"
