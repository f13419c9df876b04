"""How much latency does your policy stand? Put your environment and your policy where these are.

The pole of InvertedPendulum-v5 under a linear feedback that nobody told of latency.
"""

import gymnasium
import numpy as np

import midstride
from midstride.measure.margin import MarginSettings


def policy(observation: np.ndarray) -> np.ndarray:
    position, angle, velocity, spin = observation
    return np.clip([0.3 * position + 12 * angle + 0.6 * velocity + 2.0 * spin], -3, 3)


def make_env() -> gymnasium.Env:
    return gymnasium.make("InvertedPendulum-v5", max_episode_steps=200)


def main(episodes: int = 40) -> midstride.Margin:
    settings = MarginSettings(episodes=episodes, longest="120ms")
    found = midstride.margin(policy, make_env, settings)
    low_s, high_s = found.delay_interval_s
    high = "beyond" if high_s is None else f"{1e3 * high_s:.0f}"
    print(f"stands {1e3 * found.delay_s:.0f} ms of latency [{1e3 * low_s:.0f}, {high}]")
    print(f"thinks {1e3 * found.decision_time.p99_s:.2g} ms (p99 on this machine)")
    for point in found.curve:
        print(f"  {1e3 * point.at:4.0f} ms: return {point.mean:5.0f}, {point.episodes} episodes")
    return found


if __name__ == "__main__":
    main()
