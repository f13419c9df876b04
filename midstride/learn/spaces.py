"""The spaces of environments as agents see them, and exploration in continuous ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.envs.learnable import Commands, LearnableEnvs
from midstride.learn import cem
from midstride.learn.frames import Kind

MAX_ACTIONS = 64


def observed_kinds(envs: LearnableEnvs) -> dict[str, Kind]:
    """Parts of an observation that are learned from, with their shapes and types."""
    space = envs.single_observation_space
    if isinstance(space, spaces.Dict) and {"image", "state"} <= space.keys():
        parts: Any = space  # of a Dict, each with a shape and a type
        return {name: (parts[name].shape, parts[name].dtype) for name in ("state", "image")}
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return {"state": (space.shape, np.float32)}
    raise ValueError(f"qtopt observes a flat Box, or a Dict of image and state, not {space}")


def search_space(envs: LearnableEnvs) -> tuple[cem.ActionSpace, int | None]:
    """What an action can be, and which column of it silences the others, if any."""
    space, commands = envs.single_action_space, envs.hints.commands
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or not space.is_bounded():
        raise ValueError(
            f"qtopt needs continuous actions with bounds, not {space}; our tasks have them with "
            "--actions continuous"
        )
    if commands is None:
        return cem.ActionSpace(space.low, space.high, np.zeros((1, 0))), None
    free = len(space.low) - commands.settings.shape[1]
    low, high = space.low[:free].astype(float), space.high[:free].astype(float)
    return cem.ActionSpace(low, high, commands.settings), commands.ends


def check_continuous(agent: str, envs: LearnableEnvs) -> None:
    """An error if an actor's Gaussian does not fit: flat observations, actions with bounds."""
    observed, action = envs.single_observation_space, envs.single_action_space
    if not isinstance(observed, spaces.Box) or len(observed.shape) != 1:
        raise ValueError(f"{agent} observes a flat Box, not {observed}: images are for qtopt")
    if not isinstance(action, spaces.Box) or not action.is_bounded():
        raise ValueError(
            f"{agent} needs continuous actions with bounds, not {action}; our tasks have them "
            "with --actions continuous, and dqn chooses between discrete ones"
        )
    if envs.hints.commands is not None:
        raise ValueError(f"{agent} knows no commands beside continuous actions: use qtopt")


def value_range(settings: Any, envs: LearnableEnvs) -> tuple[float, float] | None:
    """The lowest and the highest value that a state can have, or None if nobody says."""
    if settings.value_range is not None:
        return tuple(settings.value_range)
    bounds = envs.hints.value_bounds
    return None if bounds is None else bounds(settings.gamma_per_s)


def explored(
    action: NDArray[np.floating],
    space: cem.ActionSpace,
    commands: Commands | None,
    sigma: float,
    share: float,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Actions (n, size) with noise on what is continuous, and now and then something else."""
    n, free = len(action), len(space.low)
    half = (space.high - space.low) / 2
    tried = np.array(action, np.float32)
    noise = sigma * rng.standard_normal((n, free)) * half
    tried[:, :free] = np.clip(tried[:, :free] + noise, space.low, space.high)
    anywhere = rng.random(n) < share
    drawn = rng.uniform(space.low, space.high, (int(anywhere.sum()), free))
    tried[anywhere, :free] = drawn
    if commands is not None:
        anything = rng.random(n) < share
        count = int(anything.sum())
        chosen = rng.choice(len(commands.settings), count, p=commands.tried)
        tried[anything, free:] = commands.settings[chosen]
    return tried


def action_table(space: Any, levels: int) -> NDArray[Any] | None:
    """The actions that numbers stand for, (count, *shape); None where actions are numbers."""
    if isinstance(space, spaces.Discrete):
        return None
    if not isinstance(space, spaces.Box) or not space.is_bounded():
        raise ValueError(f"cannot make discrete actions of {space}: it must be a bounded Box")
    dims = int(np.prod(space.shape))
    if levels**dims > MAX_ACTIONS:
        raise ValueError(
            f"{levels} levels of {dims} action dimensions make {levels**dims} discrete actions, "
            f"more than {MAX_ACTIONS}: take fewer --levels, or an agent for continuous actions"
        )
    axes = np.linspace(space.low.ravel(), space.high.ravel(), levels).T
    table = np.array(list(itertools.product(*axes)), space.dtype)
    return table.reshape(-1, *space.shape)
