"""Train policies as others do: Stable-Baselines3 as it comes, in worlds that freeze for thought.

Their delay margins are in results/margins. Default hyperparameters and `MlpPolicy` throughout.

    python examples/train_policies_of_others.py ppo-cartpole sac-pendulum
    python examples/train_policies_of_others.py --all        # about an hour of one core

Needs Stable-Baselines3: pip install stable-baselines3. What exists is not trained again.
"""

import argparse
import json
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

EXAMPLES = Path(__file__).parent
FOLDER = EXAMPLES.parent / "results" / "margins" / "policies"
RECORD = "trained.jsonl"


@dataclass(frozen=True)
class Recipe:
    """One training."""

    algorithm: type[PPO] | type[SAC]
    env: str
    steps: int
    seed: int = 0


RECIPES = {  # shortest first
    "ppo-cartpole": Recipe(PPO, "CartPole-v1", 60_000),
    "ppo-inverted-pendulum": Recipe(PPO, "InvertedPendulum-v5", 100_000),
    "sac-pendulum": Recipe(SAC, "Pendulum-v1", 8_000),
    "ppo-planar-drone": Recipe(PPO, "own_environment:PlanarDrone-v0", 250_000),
    "sac-reacher": Recipe(SAC, "Reacher-v5", 15_000),
    "sac-inverted-double-pendulum": Recipe(SAC, "InvertedDoublePendulum-v5", 15_000),
    "ppo-hopper": Recipe(PPO, "Hopper-v5", 400_000),
    "sac-half-cheetah": Recipe(SAC, "HalfCheetah-v5", 35_000),
}


def train(recipe: Recipe, name: str, folder: Path) -> dict[str, Any]:
    """Train, save `name`.zip and tell what came of it in the frozen world."""
    started = time.perf_counter()
    env = Monitor(gymnasium.make(recipe.env))
    model = recipe.algorithm("MlpPolicy", env, seed=recipe.seed, device="cpu")
    model.learn(recipe.steps)
    returns, _ = evaluate_policy(model, env, n_eval_episodes=20, return_episode_rewards=True)
    forget_moments(model)
    model.save(folder / f"{name}.zip")
    return {
        "name": name,
        "algorithm": recipe.algorithm.__name__,
        "env": recipe.env,
        "steps": recipe.steps,
        "seed": recipe.seed,
        "mean_return": round(float(np.mean(returns)), 2),
        "std_return": round(float(np.std(returns)), 2),
        "episodes": len(returns),
        "seconds": round(time.perf_counter() - started),
        "versions": {
            "python": platform.python_version(),
            "stable_baselines3": stable_baselines3.__version__,
            "torch": torch.__version__,
            "gymnasium": gymnasium.__version__,
        },
    }


def forget_moments(model: PPO | SAC) -> None:
    """Empty the optimizers: half of a file's bytes, and nothing that acts."""
    for part in (model.policy, getattr(model, "actor", None), getattr(model, "critic", None)):
        optimizer = getattr(part, "optimizer", None)
        if optimizer is not None:
            optimizer.state.clear()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--all", action="store_true", help="every policy")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the zips go")
    options = parser.parse_args(arguments)
    names = list(RECIPES) if options.all else options.names
    unknown = sorted(set(names) - set(RECIPES))
    if unknown or not names:
        parser.error(f"give --all or names among {', '.join(RECIPES)}")
    sys.path.insert(0, str(EXAMPLES))  # for our own environment
    torch.set_num_threads(1)  # networks this small are slower on several
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (options.folder / f"{name}.zip").exists():
            print(f"{name}: is there already")
            continue
        found = train(RECIPES[name], name, options.folder)
        with (options.folder / RECORD).open("a") as record:
            record.write(json.dumps(found) + "\n")
        print(f"{name}: return {found['mean_return']} in {found['seconds']} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
