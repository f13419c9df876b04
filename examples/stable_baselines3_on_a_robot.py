"""A policy of Stable-Baselines3 on a robot that does not wait.

    pip install 'midstride[realtime,measure,train]' stable-baselines3
    python examples/stable_baselines3_on_a_robot.py

DQN, as it comes, learns to swing up our Cartpole in a frozen world (two to ten minutes). Its zip,
in which nothing is executed, then runs on a Cartpole that is a process of its own, on the wall
clock, by the command that runs any policy on any robot. Both returns are of 1000.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

import midstride  # noqa: F401  (registers the environments)

ACTIONS, PERIOD_S, EPISODE_S = 5, 0.05, 10


def train(path: Path, steps: int) -> float:
    env = gymnasium.make("midstride/CartpoleSwingup-v0", period=PERIOD_S, actions=ACTIONS)
    model = DQN(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        batch_size=256,
        learning_starts=min(1000, steps // 2),
        target_update_interval=500,
        exploration_fraction=0.3,
        policy_kwargs={"net_arch": [128, 128]},
        seed=0,
    )
    model.learn(steps)
    model.save(path)
    mean_return, _ = evaluate_policy(model, Monitor(env), n_eval_episodes=5)
    return float(mean_return)


def run_on_a_robot(path: Path, folder: Path, seconds: float) -> float:
    """The reward of a run on the wall clock."""
    here = ["--token", f"{folder}/token"]
    address = f"unix:{folder}/robot.socket"
    midstride_ = [sys.executable, "-m", "midstride"]
    serve = ["robot", "cartpole", "--actions", str(ACTIONS), "--address", address, *here]
    robot = subprocess.Popen([*midstride_, *serve])
    try:
        while not (folder / "token").exists():
            if robot.poll() is not None:
                raise RuntimeError("the robot did not start")
            time.sleep(0.1)
        run = ["run", str(path), "--robot", address, *here, "--period", f"{PERIOD_S}"]
        run += ["--seconds", str(seconds), "--seed", "1", "--output", f"{folder}/run"]
        subprocess.run([*midstride_, *run], check=True)
    finally:
        robot.terminate()
        robot.wait()
    return float(json.loads((folder / "run" / "run.json").read_text())["score"])


def main(
    folder: Path = Path("sb3-on-a-robot"), steps: int = 60_000, seconds: float = EPISODE_S
) -> tuple[float, float]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "dqn.zip"
    frozen = train(path, steps)
    on_the_robot = run_on_a_robot(path, folder, seconds)
    print(f"in a frozen world {frozen:.0f}, on the robot {on_the_robot:.0f}, of 1000")
    return frozen, on_the_robot


if __name__ == "__main__":
    main()
