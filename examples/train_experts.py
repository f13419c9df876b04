"""Train the policies that `midstride reproduce adapt` makes fit for latency: 8 for each task.

SAC of sbx and PPO of Stable-Baselines3 as they come (default hyperparameters, `MlpPolicy`), in
worlds that freeze for thought.

    python examples/train_experts.py double-pendulum pendulum --seeds 0 1 2
    python examples/train_experts.py --all        # about four hours of one core
    python examples/train_experts.py double-pendulum --at 1 2

With --at they are trained at so many control steps of latency, knowing the actions in flight: what
adapted policies are compared with. Of these only returns are kept, in trained_at.jsonl.

Needs both: pip install sbx-rl stable-baselines3. What exists is not trained again. Of SAC the actor
is kept as a policy of ours, and with --replays its replay, which is data to adapt from.
"""

import os

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import argparse
import itertools
import json
import platform
import sys
import time
from collections.abc import Callable
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

from midstride import Concurrent, as_policy
from midstride.envs.dm_control import DMControlEnv
from midstride.learn.record import save_record
from midstride.learn.sources import from_replay_buffer
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
    "half-cheetah": Recipe("sac", "HalfCheetah-v5", 40_000),
    "planar-drone": Recipe("ppo", "own_environment:PlanarDrone-v0", 250_000),
    "hopper": Recipe("ppo", "Hopper-v5", 300_000),
    "walker2d": Recipe("ppo", "Walker2d-v5", 300_000),
    # 30,000 steps teach it nothing (a return of 43): there is no gait to lose.
    "dmc-walker": Recipe("sac", "dmc:walker/walk", 100_000),
    # Not Ant: it gets 990 for standing still, more than 50,000 steps of SAC teach it.
    "humanoid": Recipe("ppo", "Humanoid-v5", 300_000),
}


def make_env(name: str) -> gymnasium.Env[Any, Any]:
    if name.startswith("dmc:"):
        return DMControlEnv(*name.removeprefix("dmc:").split("/"))
    return gymnasium.make(name)


def learned(recipe: Recipe, seed: int, make: Callable[[], gymnasium.Env[Any, Any]]) -> Any:
    """The model after its training."""
    env = DummyVecEnv([lambda: Monitor(make())])
    if recipe.algorithm == "sac":
        model = sbx.SAC("MlpPolicy", env, seed=seed)
    else:
        model = stable_baselines3.PPO("MlpPolicy", env, seed=seed, device="cpu")
    return model.learn(recipe.steps)


def train(name: str, seed: int, folder: Path, replays: Path | None) -> dict[str, Any]:
    """Train, save, and tell what came of it in the frozen world."""
    recipe = RECIPES[name]
    started = time.perf_counter()
    model = learned(recipe, seed, lambda: make_env(recipe.env))
    saved = folder / f"{name}-{seed}"
    if recipe.algorithm == "sac":
        if replays is not None:
            replays.mkdir(parents=True, exist_ok=True)
            record = from_replay_buffer(model.replay_buffer, model.action_space)
            save_record(record, replays / f"{name}-{seed}.safetensors")
        saved.mkdir(exist_ok=True)
        save_policy(actor_of(model), saved)
    else:
        model.policy.optimizer.state.clear()  # half of a file's bytes, and nothing that acts
        saved = saved.with_suffix(".zip")
        model.save(saved)
    returns = evaluate(load(saved), make_env(recipe.env))
    return told(f"{name}-{seed}", recipe, seed, returns, started)


def train_at(name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train with control steps of latency, knowing what is in flight; tell what came of it."""
    recipe = RECIPES[name]
    started = time.perf_counter()
    period_s = Concurrent(make_env(recipe.env)).timing.longest_period_s

    def make() -> gymnasium.Env[Any, Any]:
        knowledge = ("previous_action", "pending_actions")
        return Concurrent(make_env(recipe.env), steps * period_s, knowledge)

    model = learned(recipe, seed, make)
    returns = evaluate(as_policy(model), make())
    return {**told(f"{name}-{seed}-at-{steps}", recipe, seed, returns, started), "at": steps}


def told(
    name: str, recipe: Recipe, seed: int, returns: list[float], started: float
) -> dict[str, Any]:
    """What is written down of a training."""
    return {
        "name": name,
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
    parser.add_argument("--at", type=int, nargs="+", default=[], metavar="STEPS",
                        help="control steps of latency to train at, in place of none")  # fmt: skip
    options = parser.parse_args(arguments)
    names = list(RECIPES) if options.all else options.names
    unknown = sorted(set(names) - set(RECIPES))
    if unknown or not names:
        parser.error(f"give --all or names among {', '.join(RECIPES)}")
    sys.path.insert(0, str(EXAMPLES))  # for our own environment
    torch.set_num_threads(1)  # networks this small are slower on several
    options.folder.mkdir(parents=True, exist_ok=True)
    record = options.folder / ("trained_at.jsonl" if options.at else RECORD)
    lines = record.read_text().splitlines() if record.exists() else []
    done = {json.loads(line)["name"] for line in lines}
    for name, at, seed in itertools.product(names, options.at or [None], options.seeds):
        called = f"{name}-{seed}" if at is None else f"{name}-{seed}-at-{at}"
        if called in done:
            print(f"{called}: is there already")
            continue
        if at is None:
            found = train(name, seed, options.folder, options.replays)
        else:
            found = train_at(name, seed, at)
        with record.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(f"{called}: {found['mean_return']} in {found['seconds']} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
