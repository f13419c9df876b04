"""Sweeps: trials per hour on all cores, against Stable-Baselines3, one trial after another."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.figures import Figure, seconds
from midstride.scale.jobs import Job
from midstride.scale.local import run_jobs
from midstride.sweep.spec import Trial, expand, read_spec
from midstride.tasks.settings import TaskSettings
from midstride.tasks.single import TaskEnv

STEPS = 60_000  # of each trial, as in the figure: start-up and evaluations included
PEER_STEPS = 3_000  # of Stable-Baselines3, extrapolated to STEPS
DRAWS = 4


def run() -> list[Figure]:
    """Feed-forward trials of Figure 2a: Stable-Baselines3 has no recurrent DQN."""
    every = expand(read_spec("figure2a"), DRAWS)
    trials = [trial for trial in every if trial.training.agent.agent == "dqn"][::2]
    ours = _ours(trials)
    peer = float(np.mean([_sb3(trial) for trial in trials[:3]]))
    return [
        Figure(
            "sweep/trials-vs-sb3",
            peer / ours,
            "x",
            f"Stable-Baselines3 DQN, one after another: {3600 / peer:.0f} trials of {STEPS:,} "
            f"steps per hour, extrapolated; midstride: {3600 / ours:.0f}",
        )
    ]


def _ours(trials: list[Trial]) -> float:
    """Seconds per trial."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            Job(str(i), trial.training.with_(steps=STEPS), Path(folder) / str(i))
            for i, trial in enumerate(trials)
        ]
        return seconds(lambda: list(run_jobs(jobs))) / len(jobs)


def _sb3(trial: Trial) -> float:
    """Seconds of a trial with Stable-Baselines3: training, and the same evaluation episodes."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    training = trial.training
    environment, run = training.environment, training.run
    assert isinstance(environment, TaskSettings)

    class Clock(BaseCallback):  # type: ignore[misc]
        started, first = 0.0, 0

        def _on_step(self) -> bool:
            if not self.started and self.num_timesteps >= 1_000:
                self.started, self.first = time.perf_counter(), self.num_timesteps
            return True

    def make() -> gymnasium.Env[Any, Any]:
        return TaskEnv(environment)

    envs = make_vec_env(make, n_envs=run.num_envs)
    model = DQN(
        "MlpPolicy",
        envs,
        learning_rate=training["learning_rate"],
        batch_size=training["batch_size"],
        learning_starts=1_000,
        train_freq=1,
        gradient_steps=run.num_envs // training["update_every"],
        policy_kwargs={"net_arch": list(training["hidden"])},
        seed=0,
    )
    clock = Clock()
    model.learn(1_000 + PEER_STEPS, callback=clock)
    per_step = (time.perf_counter() - clock.started) / (model.num_timesteps - clock.first)
    sixteen = seconds(lambda: evaluate_policy(model, envs, n_eval_episodes=run.num_envs))
    episodes = run.evaluation_episodes * (STEPS // run.evaluate_every + 4)
    return per_step * STEPS + sixteen * episodes / run.num_envs
