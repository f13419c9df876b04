"""Scripted data: what QT-Opt learns from before it acts itself.

It is the same for every row of Table 1 that has the same mode and seed: kept with every kind of
knowledge and without the step penalty. Each training takes its columns and pays its penalty.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from midstride.disk.files import write_whole
from midstride.envs.loop import interact
from midstride.knowledge import FEATURES
from midstride.learn.config import GraspConfig
from midstride.learn.replay import Batch, Experience
from midstride.tasks.grasp import actions as action_columns
from midstride.tasks.grasp import scripted
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.make import make_envs

# Of gripper and terminate: nothing, close, open, end the episode; and how often each is tried.
SETTINGS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
TRIED = np.array([0.4, 0.28, 0.28, 0.04])
# What the data depends on; everything else of a configuration is about learning.
_DEPENDS_ON = (
    "mode", "latency", "execution", "period", "observation", "image_size", "camera", "objects",
    "object_set", "scenes", "max_steps", "num_envs", "seed", "scripted_steps", "target",
)  # fmt: skip
_NOISE = (0.02, 0.4)  # of the shaken scripted policies: the calmest and the wildest


def new_experience(config: GraspConfig, envs: GraspVectorEnv, capacity: int) -> Experience:
    """An empty replay of what is to be remembered of `envs`."""
    size, sees = config.image_size, config.observation == "image"
    observed: dict[str, Any] = {"state": ((len(envs.columns),), np.float32)}
    if sees:
        observed["image"] = ((size, size, 3), np.uint8)
    fields = {
        **observed,
        "action": ((action_columns.SIZE,), np.float32),
        **dict.fromkeys(("reward", "reward_before", "latency_s", "period_s"), ((), np.float32)),
    }
    if sees:
        fields["auxiliary"] = (envs.privileged_weights.shape, np.float32)
    if config.target == "concurrent":
        fields |= {f"switch_{name}": kind for name, kind in observed.items()}
    return Experience(capacity, config.num_envs, fields, list(observed), config.max_steps)


def as_experience(step: dict[str, Any], auxiliary: Any) -> dict[str, Any]:
    """A step of `interact` as fields of an `Experience`."""
    found = {
        name: step[name]
        for name in ("action", "reward", "reward_before", "period_s", "latency_s", "done",
                     "terminated")
    }  # fmt: skip
    for prefix, name in (
        ("", "observation"),
        ("next_", "next_observation"),
        ("switch_", "observation_at_switch"),
    ):
        seen = step[name] if isinstance(step[name], dict) else {"state": step[name]}
        found |= {f"{prefix}{part}": array for part, array in seen.items()}
    if auxiliary is not None:
        found["auxiliary"] = auxiliary
    return found


def scripted_data(config: GraspConfig, envs: GraspVectorEnv, folder: Path | None) -> Experience:
    """The scripted data of a training in `envs`: from `folder` if it is there, else collected.

    folder: where it is kept, for other rows and for a resumed run
    """
    everything = replace(config, knowledge=FEATURES, step_penalty=0.0)
    path = None if folder is None else folder / f"{name_of(config)}.safetensors"
    arrays = None if path is None else _read(path)
    if arrays is None:
        arrays = collect(everything).arrays()
        if path is not None:
            contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
            write_whole(path, save_tensors(contiguous))
    columns = replace(envs.layout, features=FEATURES).columns
    chosen = [columns.index(name) for name in envs.columns]
    for name, array in arrays.items():
        if name.endswith("state"):
            arrays[name] = array[..., chosen]
    share = arrays["latency_s"] / np.maximum(arrays["period_s"], 1e-6)
    arrays["reward"] = arrays["reward"] - np.float32(config.step_penalty)
    arrays["reward_before"] = arrays["reward_before"] - np.float32(config.step_penalty) * share
    data = new_experience(config, envs, config.scripted_steps)
    data.restore(arrays, len(arrays["reward"]))
    return data


def name_of(config: GraspConfig) -> str:
    """Equal for trainings whose scripted data is the same."""
    about = {name: getattr(config, name) for name in _DEPENDS_ON}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]
    return f"{config.mode}-seed{config.seed}-{digest}"


def _read(path: Path) -> Batch | None:
    try:
        return dict(load_tensors(path.read_bytes()))
    except (OSError, SafetensorError):  # not there, or damaged: it can be collected again
        return None


def collect(config: GraspConfig) -> Experience:
    """What noisy scripted policies live through.

    Three in four environments follow the privileged policy, each with noise of its own size; one
    in four is blind, and shaken too. Now and then a command is random. Terminate is tried often
    where nothing is lifted: that it does not pay there must be learned everywhere.
    """
    rng = np.random.default_rng([config.seed, 1])
    n = config.num_envs
    envs = make_envs(config, n)
    replay = new_experience(config, envs, config.scripted_steps)
    noise = np.linspace(*_NOISE, n)[rng.permutation(n)]
    blind = np.arange(n) % 4 == 3
    no_terminate = TRIED[:3] / TRIED[:3].sum()
    auxiliary: Any = None

    def act(observation: Any) -> NDArray[Any]:
        nonlocal auxiliary
        auxiliary = envs.privileged() if config.observation == "image" else None
        action = scripted.privileged(envs.world, envs.next_latency_ticks(), noise, rng)
        unseeing = scripted.blind(envs.world, envs.steps_taken, rng)
        unseeing[:, :4] += noise[:, None] * rng.standard_normal((n, 4))
        action[blind] = unseeing[blind]
        anything = rng.random(n) < 0.08
        action[anything, 4:] = SETTINGS[rng.choice(3, int(anything.sum()), p=no_terminate)]
        too_early = (rng.random(n) < 0.04) & ~envs.world.lifted().any(axis=1)
        action[too_early, 4:] = SETTINGS[3]
        return np.clip(action, action_columns.LOW, action_columns.HIGH)

    seed = int(rng.integers(2**31))
    for step in interact(envs, act, seed, lambda which: None):
        replay.add(as_experience(step, auxiliary))
        if replay.added == replay.length:
            break
    replay.cut()
    envs.close()
    return replay
