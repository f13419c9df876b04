"""Train the policies that `midstride reproduce adapt` makes fit for latency: 8 for each task.

SAC of sbx and PPO of Stable-Baselines3 as they come (default hyperparameters, `MlpPolicy`), in
worlds that freeze for thought.

    python examples/train_experts.py double-pendulum pendulum --seeds 0 1 2
    python examples/train_experts.py --all        # about four hours of one core

Needs both: pip install sbx-rl stable-baselines3. What exists is not trained again. Of SAC the actor
is kept as a policy of ours, and with --replays its replay, which is data to adapt from.
"""

import os

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import argparse
import json
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import sbx
import stable_baselines3
import torch
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from midstride.envs.dm_control import DMControlEnv
from midstride.learn.record import from_replay_buffer, save_record
from midstride.policies import ActorPolicy, load, save_policy

EXAMPLES = Path(__file__).parent
FOLDER = EXAMPLES.parent / "results" / "adapt" / "policies"
RECORD = "trained.jsonl"
FAR = np.float32(2**12)
EPISODES, FIRST_SEED = 20, 500  # of the evaluation in the frozen world


@dataclass(frozen=True)
class Recipe:
    """One kind of training."""

    algorithm: Literal["sac", "ppo"]  # of sbx, of Stable-Baselines3
    env: str
    steps: int


RECIPES = {  # shortest first
    "pendulum": Recipe("sac", "Pendulum-v1", 6_000),
    "double-pendulum": Recipe("sac", "InvertedDoublePendulum-v5", 15_000),
    "dmc-walker": Recipe("sac", "dmc:walker/walk", 30_000),
    "half-cheetah": Recipe("sac", "HalfCheetah-v5", 40_000),
    "planar-drone": Recipe("ppo", "own_environment:PlanarDrone-v0", 250_000),
    "hopper": Recipe("ppo", "Hopper-v5", 300_000),
    "walker2d": Recipe("ppo", "Walker2d-v5", 500_000),
    "ant": Recipe("sac", "Ant-v5", 50_000),
}


def make_env(name: str) -> gymnasium.Env[Any, Any]:
    if name.startswith("dmc:"):
        return DMControlEnv(*name.removeprefix("dmc:").split("/"))
    return gymnasium.make(name)


def train(name: str, seed: int, folder: Path, replays: Path | None) -> dict[str, Any]:
    """Train, save, and tell what came of it in the frozen world."""
    recipe = RECIPES[name]
    started = time.perf_counter()
    env = DummyVecEnv([lambda: Monitor(make_env(recipe.env))])
    if recipe.algorithm == "sac":
        model = sbx.SAC("MlpPolicy", env, seed=seed)
    else:
        model = stable_baselines3.PPO("MlpPolicy", env, seed=seed, device="cpu")
    model.learn(recipe.steps)
    saved = folder / f"{name}-{seed}"
    if recipe.algorithm == "sac":
        if replays is not None:
            replays.mkdir(parents=True, exist_ok=True)
            space = env.action_space
            record = from_replay_buffer(model.replay_buffer, space)
            save_record(record, replays / f"{name}-{seed}.safetensors")
        saved.mkdir(exist_ok=True)
        save_policy(actor_of(model), saved)
    else:
        model.policy.optimizer.state.clear()  # half of a file's bytes, and nothing that acts
        saved = saved.with_suffix(".zip")
        model.save(saved)
    returns = evaluate(load(saved), make_env(recipe.env))
    return {
        "name": f"{name}-{seed}",
        "algorithm": recipe.algorithm,
        "env": recipe.env,
        "steps": recipe.steps,
        "seed": seed,
        "mean_return": round(float(np.mean(returns)), 2),
        "std_return": round(float(np.std(returns)), 2),
        "episodes": len(returns),
        "seconds": round(time.perf_counter() - started),
        "versions": {
            "python": platform.python_version(),
            "stable_baselines3": stable_baselines3.__version__,
            "sbx": sbx.__version__,
            "torch": torch.__version__,
            "gymnasium": gymnasium.__version__,
        },
    }


def actor_of(model: sbx.SAC) -> ActorPolicy:
    """The actor of a SAC of sbx, whose mean action is the same network as ours."""
    layers = model.policy.actor_state.params["params"]
    last = len(layers) - 2  # the mean; after it the deviation, with which it explored
    names = [f"actor.layers.{i}" for i in range(last)] + ["actor.mean"]
    weights: dict[str, Any] = {}
    for i, name in enumerate(names):
        weights[f"{name}.weight"] = np.asarray(layers[f"Dense_{i}"]["kernel"]).T.copy()
        weights[f"{name}.bias"] = np.asarray(layers[f"Dense_{i}"]["bias"])
    first = weights[f"{names[0]}.weight"]
    first *= FAR  # theirs are not normalised, nor cut where ours would be
    weights["normal.mean"] = np.zeros(first.shape[1], np.float32)
    weights["normal.scale"] = np.full(first.shape[1], 1 / FAR, np.float32)
    space = model.action_space
    about = {"kind": "actor", "low": space.low.tolist(), "high": space.high.tolist()}
    policy = ActorPolicy(weights, about)
    _check_same(policy, model)
    return policy


def _check_same(policy: Any, model: Any) -> None:
    seen = model.replay_buffer.observations[: model.replay_buffer.pos, 0][::37]
    theirs, _ = model.predict(seen, deterministic=True)
    np.testing.assert_allclose(policy(seen), theirs, atol=1e-3)


def evaluate(policy: Any, env: gymnasium.Env[Any, Any]) -> list[float]:
    """Returns of episodes in the frozen world."""
    returns = []
    for seed in range(FIRST_SEED, FIRST_SEED + EPISODES):
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--all", action="store_true", help="every task")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where policies go")
    parser.add_argument("--replays", type=Path, help="where replays go (default: nowhere)")
    options = parser.parse_args(arguments)
    names = list(RECIPES) if options.all else options.names
    unknown = sorted(set(names) - set(RECIPES))
    if unknown or not names:
        parser.error(f"give --all or names among {', '.join(RECIPES)}")
    sys.path.insert(0, str(EXAMPLES))  # for our own environment
    torch.set_num_threads(1)  # networks this small are slower on several
    options.folder.mkdir(parents=True, exist_ok=True)
    record = options.folder / RECORD
    lines = record.read_text().splitlines() if record.exists() else []
    done = {json.loads(line)["name"] for line in lines}
    for name in names:
        for seed in options.seeds:
            if f"{name}-{seed}" in done:
                print(f"{name}-{seed}: is there already")
                continue
            found = train(name, seed, options.folder, options.replays)
            with record.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{name}-{seed}: {found['mean_return']} in {found['seconds']} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
