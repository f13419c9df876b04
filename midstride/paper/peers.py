"""Trainings of peers, from our own settings: SAC by sbx, PPO by Stable-Baselines3.

A peer gets the environments, networks, batches, rates and discounts that ours has, and is judged by
the same episodes. What it has learned is not kept, only what came of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.disk.files import write_whole
from midstride.disk.read import read_json
from midstride.disk.runs import RESULT
from midstride.learn.agent import configure_jax
from midstride.learn.agents import Training
from midstride.learn.trainer import final_episodes
from midstride.policies import as_policy
from midstride.policies.actor import CLIP

NAMES = {"sac": "sbx", "ppo": "Stable-Baselines3"}


def peer_result(training: Training, folder: Path) -> dict[str, Any] | None:
    """What a peer's training came to, if it has ended."""
    try:
        found = read_json(folder / RESULT, {"hash": str, "returns": tuple[float, ...]})
    except ValueError:
        return None
    return found if found["hash"] == training.hash else None


def train_peer(training: Training, folder: Path) -> dict[str, Any]:
    """Train a peer with the settings of a training of ours, and write what came of it."""
    configure_jax()  # one thread for sbx, as for ours
    check_peer(training.agent.agent)
    import torch

    torch.set_num_threads(1)
    started = time.perf_counter()
    model, envs = (_sac if training.agent.agent == "sac" else _ppo)(training)
    model.learn(training.run.steps)
    seconds = time.perf_counter() - started
    low, high = (getattr(envs.action_space, end) for end in ("low", "high"))
    space = training.environment.make(1).single_action_space

    def act(observation: NDArray[Any]) -> NDArray[np.float32]:
        action, _ = model.predict(envs.normalize_obs(observation), deterministic=True)
        share = (action - low) / (high - low)  # PPO acts in [-1, 1]
        return np.asarray(space.low + share * (space.high - space.low), np.float32)

    episodes = final_episodes(as_policy(act, batched=True), training.environment, training.run)
    returns = [episode.total for episode in episodes]
    result = {
        "hash": training.hash,
        "peer": NAMES[training.agent.agent],
        "seed": training.run.seed,
        "mean_return": float(np.mean(returns)),
        "returns": returns,
        "seconds": round(seconds, 1),
    }
    write_whole(folder / RESULT, json.dumps(result, indent=2, allow_nan=False) + "\n")
    return result


def check_peer(agent: str) -> None:
    """An error in one sentence if a peer is not installed."""
    try:
        if agent == "sac":
            import sbx  # noqa: F401
        else:
            import stable_baselines3  # noqa: F401
    except ImportError as error:
        package = {"sac": "sbx-rl", "ppo": "stable-baselines3"}[agent]
        raise ValueError(
            f"the comparison of {agent} needs {NAMES[agent]} ({error}): pip install {package}"
        ) from None


def _envs(training: Training, reward: bool, change: Callable[[Any], Any]) -> tuple[Any, float]:
    """Environments that normalise as ours does, and their discount per step."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    agent: Any = training.agent
    environment: Any = training.environment
    period_s = environment.make(1).timing.period_s
    gamma = agent.gamma_per_s**period_s
    many = DummyVecEnv([lambda: change(environment.make_one())] * training.run.num_envs)
    envs = VecNormalize(
        many, norm_obs=agent.normalise, norm_reward=reward, clip_obs=CLIP, gamma=gamma
    )
    return envs, gamma


def _sac(training: Training) -> tuple[Any, Any]:
    from sbx import SAC

    s: Any = training.agent
    envs, gamma = _envs(training, False, lambda env: env)
    model = SAC(
        "MlpPolicy",
        envs,
        learning_rate=s.learning_rate,
        buffer_size=min(s.replay_size, training.run.steps),
        learning_starts=s.learning_starts,
        batch_size=s.batch_size,
        tau=s.target_tau,
        gamma=gamma,
        train_freq=1,
        gradient_steps=max(1, training.run.num_envs // s.update_every),
        policy_kwargs={"net_arch": list(s.hidden), "layer_norm": s.layer_norm},
        seed=training.run.seed,
    )
    return model, envs


def _ppo(training: Training) -> tuple[Any, Any]:
    from gymnasium.wrappers import RescaleAction
    from stable_baselines3 import PPO

    s: Any = training.agent
    envs, gamma = _envs(
        training,
        s.normalise_reward,
        lambda env: RescaleAction(env, np.float32(-1), np.float32(1)),
    )
    model = PPO(
        "MlpPolicy",
        envs,
        learning_rate=s.learning_rate,
        n_steps=s.rollout // training.run.num_envs,
        batch_size=s.batch_size,
        n_epochs=s.epochs,
        gamma=gamma,
        gae_lambda=s.trace,
        clip_range=s.clip,
        ent_coef=s.entropy_weight,
        vf_coef=s.value_weight,
        max_grad_norm=s.max_grad_norm,
        policy_kwargs={"net_arch": list(s.hidden), "log_std_init": s.log_deviation},
        seed=training.run.seed,
        device="cpu",
    )
    return model, envs
