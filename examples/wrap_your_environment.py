"""How much latency does your controller stand? Wrap your environment and find out.

Put your own environment and policy where these two are: an inverted pendulum of MuJoCo, whose
physics can be stopped inside a step, and CartPole, which is known by its steps alone.
"""

from collections.abc import Callable

import gymnasium
import numpy as np

import midstride


def pendulum(latency_s: float) -> gymnasium.Env:
    return midstride.Concurrent(gymnasium.make("InvertedPendulum-v5"), latency=latency_s)


def balance(observation: np.ndarray) -> np.ndarray:
    position, angle, velocity, spin = observation
    return np.clip([0.7 * position + 20 * angle + 1.0 * velocity + 1.2 * spin], -3, 3)


def cartpole(latency_s: float) -> gymnasium.Env:
    """It does not say how long a step lasts: 20 ms."""
    return midstride.Concurrent(gymnasium.make("CartPole-v1"), latency=latency_s, step_s=0.02)


def push(observation: np.ndarray) -> int:
    position, velocity, angle, spin = observation
    return int(0.1 * position + 0.3 * velocity + 5 * angle + spin > 0)


def seconds_balanced(
    make: Callable[[float], gymnasium.Env],
    policy: Callable[[np.ndarray], np.ndarray | int],
    latency_s: float,
    episodes: int = 10,
) -> float:
    env, seconds = make(latency_s), 0.0
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        over = False
        while not over:
            observation, _, terminated, truncated, info = env.step(policy(observation))
            over = terminated or truncated
            seconds += info["period_s"]
    return seconds / episodes


def main() -> None:
    for name, make, policy in (
        ("MuJoCo's pendulum", pendulum, balance),
        ("CartPole", cartpole, push),
    ):
        for latency_s in (0.0, 0.02, 0.04, 0.06, 0.08):
            balanced = seconds_balanced(make, policy, latency_s)
            print(f"{name}, latency {latency_s * 1e3:2.0f} ms: balanced {balanced:4.1f} s")


if __name__ == "__main__":
    main()
