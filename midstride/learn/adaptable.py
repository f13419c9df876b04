"""Whether a policy can be adapted, and data are what it can be adapted from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.learn.collect import Env
from midstride.learn.record import Record

Array = NDArray[Any]


def check_function(policy: Any, env: Env) -> None:
    """An error if the policy is no function of the observation: then there is no right answer."""
    inner = getattr(policy, "policy", policy)
    if getattr(inner, "is_recurrent", False):
        raise ValueError(
            "this policy has a memory, so what it would do at the switch does not follow from what "
            "is observed there: adapt one that is a function of the observation"
        )
    observation, _ = env.reset(seed=0)
    policy.reset()
    first = np.asarray(policy(observation))
    if any(not np.array_equal(first, np.asarray(policy(observation))) for _ in range(9)):
        raise ValueError(
            "the policy does not do the same twice for the same observation (it draws its actions, "
            "or has a memory): give its deterministic action, such as the mean"
        )
    policy.reset()


def check_fits(record: Record, env: Env) -> None:
    """An error if a record is not of this environment."""
    shape = env.observation_space.shape
    if record.observation.shape[1:] != shape:
        raise ValueError(
            f"the data have observations of shape {record.observation.shape[1:]}, the environment "
            f"of {shape}: give what was recorded in this environment, unwrapped and not normalised"
        )
    action = env.action_space
    if record.action.shape[1:] != action.shape:
        raise ValueError(
            f"the data have actions of shape {record.action.shape[1:]}, the environment of "
            f"{action.shape}"
        )
    done = record.action
    if isinstance(action, spaces.Box):
        done = done.astype(action.dtype)
    if isinstance(action, spaces.Discrete):
        taken = (done >= action.start) & (done < action.start + action.n) & (done == done.round())
    else:
        taken = (done >= action.low) & (done <= action.high)  # type: ignore[attr-defined]
    if not taken.all():
        raise ValueError(
            "the data have actions that the environment does not take: give them as the "
            "environment got them, not scaled"
        )


def check_coverage(inputs: Array, columns: Sequence[str]) -> None:
    """An error if what was in flight never varied: nothing can be learned of it."""
    if len(inputs) < 200:
        raise ValueError(
            f"only {len(inputs)} steps of the data go on to their switch: give more (thousands), "
            "or longer episodes"
        )
    moved = np.ptp(inputs, axis=0) > 0
    in_flight = [i for i, name in enumerate(columns) if name.startswith("previous_action")]
    if in_flight and not moved[in_flight].any():
        raise ValueError(
            "the data always have the same action in flight, so that nothing can be learned of "
            "what it does: give data in which actions vary"
        )
