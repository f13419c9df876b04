"""Demonstrations: what an agent learns from before it acts itself.

The environment's own scripted policies where it has some, random actions elsewhere. They depend on
the environment and the seed alone: two trainings that differ in what they know see the same ones.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.disk.tensors import read_tensors, write_tensors
from midstride.envs.learnable import Act, LearnableEnvs
from midstride.envs.vector import interact
from midstride.learn.frames import FrameReplay
from midstride.learn.relabel import RelabelledReplay

Kept = FrameReplay | RelabelledReplay


def demonstrations(envs: LearnableEnvs, replay: Kept, seed: int, path: Path | None) -> Kept:
    """Fill a replay from `path`, or by demonstrating if it is not there; then it is."""
    if path is not None:
        with suppress(
            ValueError, LookupError, TypeError
        ):  # not there, or damaged: they can be made again
            arrays, _ = read_tensors(path)
            replay.restore(arrays)
            return replay
    rng = np.random.default_rng([seed, 1])
    act = noting(envs, (envs.hints.demonstrator or random_actor(envs))(rng))
    for step in interact(envs, act, int(rng.integers(2**31)), lambda which: None):
        replay.add(step)
        if replay.added == replay.length:
            break
    replay.cut()
    if path is not None:
        write_tensors(path, replay.arrays(), {})
    return replay


def noting(envs: LearnableEnvs, act: Act) -> Act:
    """Act, and note what the image ought to tell, where the environments know that."""
    tell = envs.hints.auxiliary

    def told(observation: Any) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        auxiliary = {} if tell is None else {"auxiliary": tell()}
        action, notes = act(observation)
        return action, {**notes, **auxiliary}

    return told


def random_actor(envs: LearnableEnvs) -> Any:
    """Actions drawn evenly from the bounds of the action space."""
    low, high = envs.single_action_space.low, envs.single_action_space.high
    shape = (envs.num_envs, *low.shape)

    def demonstrator(rng: np.random.Generator) -> Act:
        return lambda observation: (rng.uniform(low, high, shape).astype(low.dtype), {})

    return demonstrator
