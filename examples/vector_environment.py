"""Many concurrent environments at once, each episode with a latency of its own.

First a task of ours, then a vector environment that somebody else wrote: put yours there.
"""

import time

import gymnasium
import numpy as np

import midstride


def main(num_envs: int = 64, steps: int = 400) -> None:
    for make in (ours, theirs):
        run(make(num_envs), steps)


def ours(num_envs: int) -> gymnasium.vector.VectorEnv:
    return gymnasium.make_vec(
        "midstride/CartpoleSwingup-v0",
        num_envs=num_envs,
        latency=midstride.PerEpisode((0.0, 0.005, 0.01, 0.025, 0.05)),
        execution=0.025,
        knowledge=("previous_action", "selection_time", "vector_to_go"),
    )


def theirs(num_envs: int) -> gymnasium.vector.VectorEnv:
    """Its steps are the ticks, 20 ms each; a latency of 40 ms has one more decision pending."""
    return midstride.ConcurrentVector(
        gymnasium.make_vec(
            "CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point"
        ),
        latency=midstride.PerEpisode((0.0, 0.02, 0.04)),
        step_s=0.02,
        knowledge=("previous_action", "pending_actions", "selection_time"),
    )


def run(envs: gymnasium.vector.VectorEnv, steps: int) -> None:
    columns = getattr(envs, "columns", None) or envs.unwrapped.columns
    print("columns:", ", ".join(columns))
    envs.reset(seed=0)
    returns, finished = np.zeros(envs.num_envs), []
    start = time.perf_counter()
    for _ in range(steps):
        _, rewards, terminated, truncated, _ = envs.step(envs.action_space.sample())
        returns += rewards
        over = terminated | truncated
        finished.extend(returns[over])
        returns[over] = 0
    rate = steps * envs.num_envs / (time.perf_counter() - start)
    print(f"{rate:,.0f} steps/s; {len(finished)} episodes, mean return {np.mean(finished):.0f}")


if __name__ == "__main__":
    main()
