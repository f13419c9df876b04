"""Train someone else's DQN on a concurrent environment, with and without vector-to-go.

Needs Stable-Baselines3: pip install stable-baselines3. About ten minutes; fewer steps show less.
"""

import sys

import gymnasium
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy

import midstride  # noqa: F401  (registers the environments)


def train(knowledge: tuple[str, ...], steps: int) -> float:
    env = gymnasium.make(
        "midstride/CartpoleSwingup-v0", latency=0.05, execution=0.0, knowledge=knowledge
    )
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
    mean_return, _ = evaluate_policy(model, env, n_eval_episodes=3)
    return float(mean_return)


def main(steps: int = 100_000) -> None:
    for knowledge in ((), ("vector_to_go",)):
        name = ", ".join(knowledge) or "nothing"
        print(f"knows {name}: return {train(knowledge, steps):.0f} of 1000")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
