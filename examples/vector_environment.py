"""Many concurrent environments at once, each episode with a latency of its own."""

import time

import gymnasium
import numpy as np

import midstride


def main(num_envs: int = 64, steps: int = 400) -> None:
    envs = gymnasium.make_vec(
        "midstride/CartpoleSwingup-v0",
        num_envs=num_envs,
        latency=midstride.PerEpisode((0.0, 0.005, 0.01, 0.025, 0.05)),
        execution=0.025,
        knowledge=("previous_action", "selection_time", "vector_to_go"),
    )
    print("columns:", ", ".join(envs.unwrapped.columns))
    observations, _ = envs.reset(seed=0)
    returns, finished = np.zeros(num_envs), []
    start = time.perf_counter()
    for _ in range(steps):
        observations, rewards, _, truncated, info = envs.step(envs.action_space.sample())
        returns += rewards
        if truncated.any():  # the last observations of the episodes are in info["final_obs"]
            assert info["final_obs"].shape == observations.shape
            finished.extend(returns[truncated])
            returns[truncated] = 0
    rate = steps * num_envs / (time.perf_counter() - start)
    print(f"{rate:,.0f} steps/s; {len(finished)} episodes, mean return {np.mean(finished):.0f}")


if __name__ == "__main__":
    main()
