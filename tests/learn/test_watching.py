"""Watching a training does not change it: not one bit of what is learned, remembered or logged."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from midstride.disk.runs import Run, read_metrics
from midstride.learn.agents import Training
from midstride.learn.train import train

SHARED = {
    "steps": 640, "num_envs": 4, "batch_size": 16, "replay_size": 400, "update_every": 3,
    "latency": "50ms", "knowledge": ("vector_to_go",),
    "evaluate_every": 640, "evaluation_episodes": 1, "checkpoint_every": 10**9,
}  # fmt: skip
VALUES = {"hidden": (8,), "learning_starts": 100}
AGENTS = {
    "dqn": ("dqn", VALUES),
    "prioritised": (
        "dqn",
        {**VALUES, "prioritised": True, "dueling": True, "n_step": 2, "target_every": 7},
    ),
    "drqn": ("drqn", {**VALUES, "lstm_size": 8, "segment": 4, "burn_in": 2}),
    "qtopt": (
        "qtopt",
        {
            "actions": "continuous", "hidden_size": 8, "samples": 8, "demonstrations": 80,
            "offline_updates": 8, "target_lag": 7,
        },
    ),
}  # fmt: skip


def training(name: str, **watching) -> Training:
    agent, own = AGENTS[name]
    return Training.of("pointmass", agent, **{**SHARED, **own, **watching})


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


@pytest.mark.parametrize("name", AGENTS)
@settings(max_examples=2, phases=[Phase.generate])  # a training each: too long to shrink
@given(
    evaluate_every=st.sampled_from([64, 128, 320, 640]),
    checkpoint_every=st.integers(20, 300),
    evaluation_episodes=st.integers(1, 3),
    tensorboard=st.booleans(),
    progress=st.booleans(),
)
def test_watching_changes_nothing(
    name, evaluate_every, checkpoint_every, evaluation_episodes, tensorboard, progress
):
    """Evaluations, checkpoints, TensorBoard and progress, however often: the same to the last bit.

    Everything that a training is made of is in its checkpoint: weights, optimiser, replay,
    priorities, random generators.
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
    for what in ("random", "returns", "steps"):
        assert about[what] == expected_about[what]
    of_training = ("training", "epsilon") + (("loss",) if evaluate_every == 640 else ())
    for what in of_training:
        assert metrics[640][what] == expected_metrics[640][what]
    assert bool(seen) == progress
