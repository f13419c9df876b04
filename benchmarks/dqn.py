"""Training speed: environment steps per second while learning, against SB3, SBX and the limit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np

from benchmarks.figures import Figure, seconds
from midstride.disk.runs import Run
from midstride.learn.agent import configure_jax
from midstride.learn.agents import Training
from midstride.learn.train import steps_until_done
from midstride.learn.trainer import Trainer
from midstride.tasks.settings import make_task

NUM_ENVS, UPDATE_EVERY = 16, 4
ENV: dict[str, Any] = {"latency": 0.05, "execution": 0.0, "knowledge": ("vector_to_go",)}
SETTINGS: dict[str, Any] = {
    "latency": "50ms",
    "execution": "0",
    "knowledge": ("vector_to_go",),
    "num_envs": NUM_ENVS,
    "update_every": UPDATE_EVERY,
    "double": False,  # as the peers
    "learning_starts": 1_000,
    "evaluate_every": 10**9,
    "checkpoint_every": 10**9,
}
WARM_UP, MEASURED, ROUNDS = 2_000, 12_000, 5


class NoRun(Run):
    """A run that writes nothing."""

    def log(self, **values: Any) -> None:
        pass


def run() -> list[Figure]:
    configure_jax()
    kinds = {"midstride": midstride_rate, "sb3": sb3_rate, "sbx": sbx_rate, "limit": limit_rate}
    samples: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, measure in kinds.items():
            try:
                samples[name].append(measure())
            except ImportError as error:
                print(f"{name} is missing ({error}): pip install -e '.[bench]'")
    rate = {name: float(np.median(values)) for name, values in samples.items() if values}
    # Of each round, then the median: a machine that is slow for a minute is slow for all.
    ratio = {
        name: float(np.median(np.divide(samples["midstride"], values)))
        for name, values in samples.items()
        if values
    }
    ours = rate["midstride"]
    figures = [
        Figure(f"dqn/steps-vs-{peer}", ratio[peer], "x", f"{name}, {rate[peer]:.0f} steps/s")
        for peer, name in (("sb3", "Stable-Baselines3 DQN"), ("sbx", "SBX DQN"))
        if peer in rate
    ]
    figures.append(
        Figure(
            "dqn/share-of-limit",
            ratio["limit"],
            "x",
            f"bare physics and bare update, overlapped: {rate['limit']:.0f} steps/s",
            limit=1.0,
        )
    )
    figures.append(
        Figure(
            "drqn/steps-per-second",
            midstride_rate("drqn", measured=2_000),
            "steps/s",
            f"dqn: {ours:.0f} steps/s",
        )
    )
    return figures


def midstride_rate(agent: str = "dqn", measured: int = MEASURED) -> float:
    """Steps per second of the training loop, after compilation and warm-up."""
    training = Training.of("cartpole", agent, **SETTINGS, steps=WARM_UP)
    trainer, run = Trainer.create(training), NoRun(Path(), {}, "")
    steps_until_done(trainer, run, lambda progress: None)
    trainer.training = training.with_(steps=WARM_UP + measured)
    elapsed = seconds(lambda: steps_until_done(trainer, run, lambda progress: None))
    return measured / elapsed


def peer_rate(algorithm: Any, policy_kwargs: dict[str, Any]) -> float:
    """Steps per second of a peer on the same environments, batch, network and update ratio."""
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Clock(BaseCallback):  # type: ignore[misc]
        started = 0.0

        def _on_step(self) -> bool:
            if not self.started and self.num_timesteps >= WARM_UP:
                self.started, self.first = time.perf_counter(), self.num_timesteps
            return True

    envs = make_vec_env(
        lambda: gymnasium.make("midstride/CartpoleSwingup-v0", **ENV), n_envs=NUM_ENVS
    )
    model = algorithm(
        "MlpPolicy",
        envs,
        learning_rate=1e-3,
        batch_size=256,
        learning_starts=1_000,
        train_freq=1,  # a step of all environments
        gradient_steps=NUM_ENVS // UPDATE_EVERY,
        target_update_interval=500,
        policy_kwargs=policy_kwargs,
        seed=0,
    )
    clock = Clock()
    model.learn(WARM_UP + MEASURED // 4, callback=clock)
    return (model.num_timesteps - clock.first) / (time.perf_counter() - clock.started)


def sb3_rate() -> float:
    from stable_baselines3 import DQN

    return peer_rate(DQN, {"net_arch": [128, 128]})


def sbx_rate() -> float:
    from sbx import DQN

    return peer_rate(DQN, {"net_arch": [128, 128]})


def limit_rate() -> float:
    """Nothing but `mj_step` on one core and the compiled update on the other."""
    trainer = Trainer.create(Training.of("cartpole", "dqn", **SETTINGS))
    agent, model = trainer.agent, make_task("cartpole").model
    agent.replay.data["transitions"][:80] = 0.5
    agent.replay.added = 80
    batch = agent.sample(NUM_ENVS // UPDATE_EVERY)

    def updates(count: int = 10) -> None:
        for _ in range(count):
            agent.dispatch(batch)  # one is under way while the next is handed over
        agent.sync()

    updates()
    update_s = np.median([seconds(updates) / 10 for _ in range(10)])
    data = mujoco.MjData(model)
    ticks = NUM_ENVS * 10
    physics_s = np.median(
        [seconds(lambda: mujoco.mj_step(model, data, nstep=ticks)) for _ in range(50)]
    )
    return float(NUM_ENVS / max(update_s, physics_s))
