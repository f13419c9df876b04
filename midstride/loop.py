"""The one interaction loop: a generator that training, evaluation and video all consume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

Step = dict[str, NDArray[Any]]
Act = Callable[[NDArray[np.float32]], NDArray[Any]]


def interact(
    envs: VectorEnv[Any, Any, Any], act: Act, seed: int | None, reset: Callable[[Any], None]
) -> Iterator[Step]:
    """Act in environments with same-step autoreset, forever; one dictionary per step.

    Fields, each (environments, ...): observation, action, reward, reward_before, reward_after,
    next_observation (the true one, also where an episode ended), observation_at_switch,
    latency_s, period_s, latency_share, terminated, done.

    `act(observation) -> actions`. `reset(which)` is called when episodes in `which` have ended,
    before the next action there.
    """
    observation, _ = envs.reset(seed=seed)
    while True:
        action = act(observation)
        following, reward, terminated, truncated, info = envs.step(action)
        done = terminated | truncated
        next_observation = following
        if done.any():
            next_observation = following.copy()
            next_observation[done] = np.stack(list(info["final_obs"][done]))
        latency_s, period_s = _of_step(info, "latency_s"), _of_step(info, "period_s")
        yield {
            "observation": observation,
            "action": action,
            "reward": reward,
            "reward_before": _of_step(info, "reward_before_switch"),
            "reward_after": _of_step(info, "reward_after_switch"),
            "next_observation": next_observation,
            "observation_at_switch": _of_step(info, "observation_at_switch", next_observation),
            "latency_s": latency_s,
            "period_s": period_s,
            "latency_share": latency_s / period_s,
            "terminated": terminated,
            "done": done,
        }
        if done.any():
            reset(done)
        observation = following


def _of_step(info: dict[str, Any], name: str, default: Any = None) -> NDArray[Any]:
    """An entry of the step just taken. Where an episode ended, Gymnasium keeps it in final_info."""
    final = info.get("final_info", {})
    if name not in info:
        if name not in final:
            return default
        return np.asarray(final[name])
    values = info[name]
    if name in final:
        ended = info["_final_info"]
        values = values.copy()
        values[ended] = final[name][ended]
    return np.asarray(values)
