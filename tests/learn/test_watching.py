"""Watching a training does not change it: not one bit of what is learned, remembered or logged."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from midstride.disk.runs import Run, read_metrics
from midstride.learn.agents import Training
from midstride.learn.replay import Replay, Row
from midstride.learn.train import train
from midstride.tasks import pointmass
from tests.helpers import step_of

SHARED = {
    "steps": 640, "num_envs": 4, "batch_size": 16,
    "latency": "50ms", "knowledge": ("vector_to_go",),
    "evaluate_every": 640, "evaluation_episodes": 1, "checkpoint_every": 10**9,
}  # fmt: skip
REPLAY = {"replay_size": 400, "update_every": 3}
VALUES = {**REPLAY, "hidden": (8,), "learning_starts": 100}
AGENTS = {
    "dqn": ("dqn", VALUES),
    "prioritised": (
        "dqn",
        {**VALUES, "prioritised": True, "dueling": True, "n_step": 2, "target_every": 7},
    ),
    "drqn": ("drqn", {**VALUES, "lstm_size": 8, "segment": 4, "burn_in": 2}),
    "sac": ("sac", {**VALUES, "actions": "continuous"}),
    "rsac": (
        "rsac", {**VALUES, "actions": "continuous", "lstm_size": 8, "segment": 4, "burn_in": 2}
    ),
    "predict": ("predict", {**VALUES, "actions": "continuous"}),
    "ppo": ("ppo", {"hidden": (8,), "rollout": 72, "epochs": 2, "actions": "continuous"}),
    "qtopt": (
        "qtopt",
        {
            **REPLAY, "actions": "continuous", "hidden_size": 8, "samples": 8, "demonstrations": 80,
            "offline_updates": 8, "target_lag": 7,
        },
    ),
}  # fmt: skip


IMAGES = {
    **REPLAY, "hidden_size": 8, "samples": 8, "demonstrations": 80, "offline_updates": 8,
    "target_lag": 7, "auxiliary_updates": 100, "image_size": 16, "scenes": 8, "latency": "80ms",
}  # fmt: skip


def training(name: str, **watching) -> Training:
    task, (agent, own) = "pointmass", AGENTS.get(name, ("qtopt", IMAGES))
    if name == "images":
        task = "grasp"
    return Training.of(task, agent, **{**SHARED, **own, **watching})


def lived(config: Training, tensorboard: bool = False, on_progress=lambda progress: None):
    """A training's last checkpoint, and its metrics by step."""
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(config, run, False, on_progress, tensorboard, keep_checkpoint=True)
        found = Run.open(run).load_checkpoint()
        assert found is not None
        arrays, about = found
        return arrays, about, {line["steps"]: line for line in read_metrics(run)}


@cache
def unwatched(name: str):
    return lived(training(name))


def check_watched(
    name, evaluate_every, checkpoint_every, evaluation_episodes, tensorboard, progress
):
    """Everything that a training is made of is the same to the last bit as when nobody looks.

    It is all in its checkpoint: weights, optimiser, replay, priorities, random generators.
    """
    seen = []
    arrays, about, metrics = lived(
        training(
            name,
            evaluate_every=evaluate_every,
            checkpoint_every=checkpoint_every,
            evaluation_episodes=evaluation_episodes,
        ),
        tensorboard,
        seen.append if progress else lambda progress: None,
    )
    expected, expected_about, expected_metrics = unwatched(name)
    assert arrays.keys() == expected.keys()
    for array in expected:
        np.testing.assert_array_equal(arrays[array], expected[array], err_msg=array)
    for what in ("random", "returns", "steps", "owed", "agent"):
        assert about[what] == expected_about[what]
    # The loss that is told is a mean since the last line.
    for what in ("training", "epsilon") + (("loss",) if evaluate_every == 640 else ()):
        assert metrics[640][what] == expected_metrics[640][what]
    assert bool(seen) == progress


@pytest.mark.parametrize("name", AGENTS)
def test_watching_closely_changes_nothing(name):
    check_watched(name, 64, 20, 2, tensorboard=True, progress=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*AGENTS, "images"])
@settings(max_examples=4, phases=[Phase.generate])  # a training each: too long to shrink
@given(
    evaluate_every=st.sampled_from([64, 128, 320, 640]),
    checkpoint_every=st.integers(20, 700),
    evaluation_episodes=st.integers(1, 3),
    tensorboard=st.booleans(),
    progress=st.booleans(),
)
def test_watching_changes_nothing(
    name, evaluate_every, checkpoint_every, evaluation_episodes, tensorboard, progress
):
    """Evaluations, checkpoints, TensorBoard and progress, however often."""
    check_watched(
        name, evaluate_every, checkpoint_every, evaluation_episodes, tensorboard, progress
    )


@pytest.mark.parametrize("name", AGENTS)
def test_a_resume_changes_nothing_but_the_episodes(name, tmp_path, monkeypatch):
    """Where new episodes are what would have come anyway, a resumed training is the same one.

    All episodes start in the same place here, and the checkpoint is taken where all of them end.
    """
    at = np.array([0.1, -0.2, 0.3, 0.4])
    monkeypatch.setattr(pointmass, "initial", lambda rng: (at, np.zeros(4)))
    config = training(name, num_envs=2, steps=400, evaluate_every=400, checkpoint_every=200)
    expected, _, expected_metrics = lived(config)
    with patch.object(Run, "finish"):
        train(config, tmp_path / "run")
    max((tmp_path / "run" / "checkpoint").iterdir()).unlink()  # that of the end
    (tmp_path / "run" / "metrics.jsonl").unlink()
    train(config, tmp_path / "run", resume=True, keep_checkpoint=True)
    found = Run.open(tmp_path / "run").load_checkpoint()
    assert found is not None
    for array in expected:
        np.testing.assert_array_equal(found[0][array], expected[array], err_msg=array)
    (line,) = read_metrics(tmp_path / "run")
    for what in ("training", "epsilon", "loss", "evaluation"):
        assert line[what] == expected_metrics[400][what]


def test_what_follows_a_resume_does_not_follow_what_came_before(tmp_path):
    """The episodes that a checkpoint cut off end there, for n-step returns and segments."""
    row = Row(2, switch=False)
    replay, again = (Replay(8, 2, row) for _ in range(2))
    for k in range(3):
        replay.add(step_of(observation_capture=np.full((2, 2), float(k))))
    again.restore({name: array.copy() for name, array in replay.arrays().items()})
    truncated = again.row.unpack(again.data["transitions"])["truncated"]
    assert truncated[:3].tolist() == [[False, False], [False, False], [True, True]]
    assert not replay.row.unpack(replay.data["transitions"])["truncated"].any()
