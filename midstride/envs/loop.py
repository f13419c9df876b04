"""The one interaction loop: a generator that training, evaluation and video all consume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

Step = dict[str, NDArray[Any]]
Act = Callable[[Any], NDArray[Any]]
MEASURES = (
    "success", "duration_s", "policy_duration_s", "completion", "completion_until_switch", "jerk",
)  # fmt: skip


def interact(
    envs: VectorEnv[Any, Any, Any], act: Act, seed: int | None, reset: Callable[[Any], None]
) -> Iterator[Step]:
    """Act in environments with same-step autoreset, forever; one dictionary per step.

    Fields, each (environments, ...): observation, action, reward, reward_before, reward_after,
    next_observation (the true one, also where an episode ended), observation_at_switch,
    latency_s, period_s, latency_share, terminated, done; and where episodes ended, the measures
    that the environment takes (MEASURES).

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
            next_observation = _with_rows(following, done, info["final_obs"])
        ended = {name: _of_step(info, name) for name in MEASURES if name in info}
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
            # A step of no time, ended at once, is all latency.
            "latency_share": np.divide(
                latency_s, period_s, out=np.ones_like(period_s), where=period_s > 0
            ),
            "terminated": terminated,
            "done": done,
            **ended,
        }
        if done.any():
            reset(done)
        observation = following


def _with_rows(observation: Any, which: NDArray[np.bool_], rows: Any) -> Any:
    """Observations with those of `which` taken from `rows`, one per environment."""
    if isinstance(observation, dict):
        return {
            name: _with_rows(part, which, [row if row is None else row[name] for row in rows])
            for name, part in observation.items()
        }
    found = observation.copy()
    found[which] = np.stack([rows[i] for i in np.flatnonzero(which)])
    return found


def _of_step(info: dict[str, Any], name: str, default: Any = None) -> NDArray[Any]:
    """An entry of the step just taken. Where an episode ended, Gymnasium keeps it in final_info."""
    final = info.get("final_info", {})
    if name not in info:
        if name not in final:
            return default
        return np.asarray(final[name])
    values = info[name]
    if isinstance(values, dict):  # of our own environments, which keep all of a step in info
        return values  # type: ignore[return-value]
    if name in final:
        ended = info["_final_info"]
        values = values.copy()
        values[ended] = final[name][ended]
    return np.asarray(values)
