"""Training speed of SAC and PPO: environment steps per second while learning, against peers.

InvertedDoublePendulum-v5, the same number of environments, networks, batches and updates per step
everywhere, and one thread for the updates. SAC is bound by its matrix products, which a peer
computes no slower: what can be had is what goes on beside them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np

from benchmarks.dqn import NoRun
from benchmarks.figures import Figure, seconds
from midstride.learn.agent import configure_jax
from midstride.learn.agents import Training
from midstride.learn.train import steps_until_done
from midstride.learn.trainer import Trainer

ENV, ROUNDS = "InvertedDoublePendulum-v5", 5
SAC_ENVS, PPO_ENVS = 16, 8
SETTINGS: dict[str, dict[str, Any]] = {
    "sac": {"num_envs": SAC_ENVS, "learning_starts": 256, "replay_size": 100_000},
    "ppo": {"num_envs": PPO_ENVS, "normalise_reward": False},  # as the peers
}
WARM_UP = {"sac": 512, "ppo": 4_096}
MEASURED = {"sac": 768, "ppo": 8_192}


def run() -> list[Figure]:
    configure_jax()
    return [*_figures("sac", sac_peers(), overlaps=True), *_figures("ppo", ppo_peers(), False)]


def _figures(agent: str, peers: dict[str, Callable[[], float]], overlaps: bool) -> list[Figure]:
    kinds = {
        "midstride": lambda: midstride_rate(agent),
        **peers,
        "limit": lambda: limit_rate(agent, overlaps),
    }
    samples: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, measure in kinds.items():
            try:
                samples[name].append(measure())
            except ImportError as error:
                print(f"{name} is missing ({error}): pip install -e '.[bench]'")
    # Of each round, then the median: a machine that is slow for a minute is slow for all.
    found = [
        (
            name,
            float(np.median(np.divide(samples["midstride"], values))),
            f"{np.median(values):.0f} steps/s, ours {np.median(samples['midstride']):.0f}",
        )
        for name, values in samples.items()
        if values and name != "midstride"
    ]
    how = "overlapped" if overlaps else "one after the other"
    return [
        Figure(
            f"{agent}/share-of-limit", ratio, "x", f"bare physics and update, {how}: {said}", 1.0
        )
        if name == "limit"
        else Figure(f"{agent}/steps-vs-{name}", ratio, "x", f"{name} {agent.upper()}, {said}")
        for name, ratio, said in found
    ]


def midstride_rate(agent: str) -> float:
    """Steps per second of the training loop, after compilation and warm-up."""
    training = training_of(agent)
    trainer, run = Trainer.create(training), NoRun(Path(), {}, "")
    steps_until_done(trainer, run, lambda progress: None)
    trainer.agent.wait()
    trainer.training = training.with_(steps=WARM_UP[agent] + MEASURED[agent])

    def measured() -> None:
        steps_until_done(trainer, run, lambda progress: None)
        trainer.agent.wait()

    rate = MEASURED[agent] / seconds(measured)
    trainer.envs.close()
    return rate


def training_of(agent: str) -> Training:
    never = {"evaluate_every": 10**9, "checkpoint_every": 10**9}
    return Training.of(f"gym:{ENV}", agent, steps=WARM_UP[agent], **SETTINGS[agent], **never)


def sac_peers() -> dict[str, Callable[[], float]]:
    options = {
        "batch_size": 256, "learning_starts": 256, "buffer_size": 100_000, "train_freq": 1,
        "gradient_steps": SAC_ENVS,
    }  # fmt: skip

    def sbx() -> float:
        from sbx import SAC

        return peer_rate("sac", SAC, options, {"net_arch": [256, 256], "layer_norm": True})

    return {"sbx": sbx}


def ppo_peers() -> dict[str, Callable[[], float]]:
    options = {"n_steps": 2_048 // PPO_ENVS, "batch_size": 64, "n_epochs": 10}

    def sbx() -> float:
        from sbx import PPO

        return peer_rate("ppo", PPO, options, {"net_arch": [64, 64]})

    def sb3() -> float:
        from stable_baselines3 import PPO

        return peer_rate("ppo", PPO, {**options, "device": "cpu"}, {"net_arch": [64, 64]})

    return {"sbx": sbx, "sb3": sb3}


def peer_rate(agent: str, algorithm: Any, options: Any, policy_kwargs: dict[str, Any]) -> float:
    """Steps per second of a peer, from the first step after the warm-up's last update."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)

    class Clock(BaseCallback):  # type: ignore[misc]
        started = 0.0

        def _on_step(self) -> bool:
            if not self.started and self.num_timesteps > WARM_UP[agent]:
                self.started, self.first = time.perf_counter(), self.num_timesteps
            return True

    envs = make_vec_env(ENV, n_envs=SETTINGS[agent]["num_envs"])
    model = algorithm("MlpPolicy", envs, policy_kwargs=policy_kwargs, seed=0, **options)
    clock = Clock()
    model.learn(WARM_UP[agent] + MEASURED[agent], callback=clock)
    rate = (model.num_timesteps - clock.first) / (time.perf_counter() - clock.started)
    envs.close()
    return float(rate)


def limit_rate(agent: str, overlaps: bool) -> float:
    """Nothing but `mj_step` and the compiled update, on a core each or one after the other."""
    trainer = Trainer.create(training_of(agent))
    learner, n = trainer.agent, SETTINGS[agent]["num_envs"]
    rows = learner.replay.data["transitions"][:64]
    rows[:] = np.random.default_rng(0).normal(size=rows.shape)
    learner.replay.added = 64
    updates = n if agent == "sac" else 1
    per_dispatch = n if agent == "sac" else learner.replay.length * n  # environment steps
    batch = learner.sample(updates)

    def learn(count: int = 4) -> None:
        for _ in range(count):
            learner.dispatch(batch)
        learner.sync()

    learn()
    update_s = np.median([seconds(learn) / 4 for _ in range(5)]) / per_dispatch
    bare: Any = gymnasium.make(ENV).unwrapped
    data, ticks = mujoco.MjData(bare.model), 100 * bare.frame_skip
    physics_s = np.median(
        [seconds(lambda: mujoco.mj_step(bare.model, data, nstep=ticks)) / 100 for _ in range(20)]
    )
    return float(1 / (max(update_s, physics_s) if overlaps else update_s + physics_s))
