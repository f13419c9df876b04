"""What is attacked: a short training of each agent, a sweep, a film, a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TINY = (
    "--num-envs 4 --batch-size 8 --evaluation-episodes 1 --evaluate-every 40 --checkpoint-every 40 "
    "--steps 160 --no-video"
)
EVERY, STEPS = 40, 160
DQN = f"train pointmass dqn {TINY} --hidden 8 --learning-starts 40"
QTOPT = (
    f"train gym:InvertedPendulum-v5 qtopt {TINY} --value-range 0 100 --hidden-size 8 --samples 6 "
    "--rounds 1 --acting-rounds 1 --replay-size 400 --demonstrations 32 --offline-updates 2"
)
TRAININGS = {"dqn": DQN, "qtopt": QTOPT}
# No checkpoint before the end: then a sweep that was killed has the table of one that was not.
SPEC = """
[common]
task = "pointmass"
steps = 120
num_envs = 4
hidden = [8]
learning_starts = 40
batch_size = 8
evaluate_every = 60
evaluation_episodes = 1
checkpoint_every = 1_000_000
learning_rate = { low = 1e-4, high = 1e-2, log = true }
[arms."knows $x^2$ [/red]"]
knowledge = ["vector_to_go"]
[arms."=nothing"]
"""
ONE_ARM = SPEC.removesuffix('[arms."=nothing"]\n')
DRAWS = 2


@dataclass(frozen=True)
class Work:
    """A command, and the folder that it writes."""

    command: tuple[str, ...]
    folder: Path


def training(agent: str, place: Path) -> Work:
    """A training that goes on with what is there."""
    command = (*TRAININGS[agent].split(), "--runs", str(place), "--name", agent, "--resume")
    return Work(command, place / agent)


def sweep(place: Path, spec_text: str = SPEC) -> Work:
    """A sweep of two arms (or one) and two draws, which goes on with what is there."""
    place.mkdir(parents=True, exist_ok=True)
    spec = place / "attacked.toml"
    spec.write_text(spec_text)
    folder = place / "sweep"
    command = ("sweep", str(spec), "--trials", str(DRAWS), "--output", str(folder))
    return Work((*command, "--workers", "1"), folder)
