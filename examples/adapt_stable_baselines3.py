"""Make a policy of Stable-Baselines3 fit for a latency, from steps of the world that waits for it.

Trained in such a world, it falls as soon as the world does not wait. Needs sbx (pip install
sbx-rl); SAC of stable_baselines3 does as well. Minutes, most of them training.
"""

import sys

import gymnasium
from sbx import SAC

import midstride
from midstride.measure.margin import MarginSettings


def make_env() -> gymnasium.Env:
    return gymnasium.make("InvertedDoublePendulum-v5")


def main(steps: int = 15_000, updates: int = 20_000, episodes: int = 20) -> None:
    model = SAC("MlpPolicy", make_env(), seed=0).learn(steps)
    settings = MarginSettings(longest="100ms", episodes=episodes)
    before = midstride.margin(model, make_env, settings)
    # For latencies of whole steps (50 ms here), data=model.replay_buffer does without new steps.
    asked = midstride.AdaptSettings(updates=updates, episodes=min(episodes, 20))
    latency = "episode:0,10ms,20ms,30ms,40ms,50ms"  # one student for all of them
    found = midstride.adapt(model, make_env, latency, settings=asked)
    print(found.verdict)
    after = midstride.margin(found.policy, make_env, settings)
    print(f"stood {1e3 * before.delay_s:.0f} ms of latency, stands {1e3 * after.delay_s:.0f} ms")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
