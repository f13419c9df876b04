"""How much latency does your controller stand? Wrap your environment and find out.

Put your own MuJoCo environment and policy where the inverted pendulum and its linear feedback are.
"""

import gymnasium
import numpy as np

import midstride


def policy(observation: np.ndarray) -> np.ndarray:
    position, angle, velocity, spin = observation
    return np.clip([0.7 * position + 20 * angle + 1.0 * velocity + 1.2 * spin], -3, 3)


def seconds_balanced(latency_s: float, episodes: int = 10) -> float:
    env = midstride.Concurrent(gymnasium.make("InvertedPendulum-v5"), latency=latency_s)
    steps = 0
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        over = False
        while not over:
            observation, _, terminated, truncated, _ = env.step(policy(observation))
            over = terminated or truncated
            steps += 1
    return steps * env.unwrapped.dt / episodes


def main() -> None:
    for latency_s in (0.0, 0.02, 0.04):
        print(f"latency {latency_s * 1e3:2.0f} ms: balanced {seconds_balanced(latency_s):4.1f} s")


if __name__ == "__main__":
    main()
