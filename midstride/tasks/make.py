"""From a configuration to environments: our tasks, Gymnasium's, DeepMind Control's."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from midstride.envs.concurrent import Concurrent
from midstride.envs.dm_control import from_dm_control
from midstride.learn.config import AnyConfig, Config, GraspConfig
from midstride.tasks import TASKS
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.timing import LatencyModel, parse_latency, parse_s

MAX_ACTIONS = 64
_EVALUATION_SCENES = 512
Envs = Any  # a VectorEnv with discrete actions, whatever its class


class Discretised(gymnasium.ActionWrapper[Any, Any, Any]):
    """A Box of actions as a list of discrete ones: all combinations of a few levels each."""

    def __init__(self, env: gymnasium.Env[Any, Any], levels: int) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, spaces.Box) or not space.is_bounded():
            raise ValueError(f"cannot make discrete actions of {space}: it must be a bounded Box")
        count = levels ** int(np.prod(space.shape))
        if count > MAX_ACTIONS:
            raise ValueError(
                f"{levels} levels of {int(np.prod(space.shape))} action dimensions make {count} "
                f"discrete actions, more than {MAX_ACTIONS}: take fewer levels or another task"
            )
        axes = np.linspace(space.low.ravel(), space.high.ravel(), levels).T
        table = np.array(list(itertools.product(*axes)), space.dtype)
        self._table = table.reshape(-1, *space.shape)
        self.action_space = spaces.Discrete(count)

    def action(self, action: Any) -> NDArray[Any]:
        return np.asarray(self._table[int(action)])


def make_envs(
    config: AnyConfig,
    num_envs: int,
    latency: LatencyModel | None = None,
    render_mode: str | None = None,
    threads: int | None = 1,
    evaluation: int | None = None,
) -> Envs:
    """The environments of a configuration, optionally at another latency.

    evaluation: with objects to evaluate with, where these differ, in scenes of this seed
    """
    latency = latency or parse_latency(config.latency)
    if isinstance(config, GraspConfig):
        return GraspVectorEnv(
            num_envs,
            mode=config.mode,
            latency=latency,
            period=None if config.period is None else parse_s(config.period),
            execution=None if config.execution is None else parse_s(config.execution),
            knowledge=config.knowledge,
            observation=config.observation,
            objects=config.objects,
            object_set=config.object_set if evaluation is None else config.evaluation_set,
            image_size=config.image_size,
            camera=config.camera,
            step_penalty=config.step_penalty,
            max_steps=config.max_steps,
            observe_switch=config.target == "concurrent",
            scenes=config.scenes if evaluation is None else _EVALUATION_SCENES,
            scene_seed=evaluation or 0,
            threads=threads,
            render_mode=render_mode,
        )
    if config.task in TASKS:
        return TaskVectorEnv(
            config.task,
            num_envs,
            latency=latency,
            execution=None if config.execution is None else parse_s(config.execution),
            period=None if config.period is None else parse_s(config.period),
            knowledge=config.knowledge,
            actions=config.actions,
            stack_observations=config.stack_observations,
            stack_actions=config.stack_actions,
            threads=threads,
            render_mode=render_mode,
        )
    kind, _, name = config.task.partition(":")
    if kind not in ("gym", "dmc") or not name or (kind == "dmc" and name.count("/") != 1):
        raise ValueError(
            f"unknown task {config.task!r}: choose from {', '.join(TASKS)}, gym:ID or "
            "dmc:DOMAIN/TASK"
        )
    if config.execution is not None or config.period is not None:
        raise ValueError(f"the period of {config.task} is the environment's own: give only latency")
    make = partial(_make_wrapped, config, kind, name, latency, render_mode)
    return SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def _make_wrapped(
    config: Config, kind: str, name: str, latency: LatencyModel, render_mode: str | None
) -> gymnasium.Env[Any, Any]:
    options: dict[str, Any] = {
        "latency": latency,
        "knowledge": config.knowledge,
        "stack_observations": config.stack_observations,
        "stack_actions": config.stack_actions,
    }
    if kind == "dmc":
        domain, task = name.split("/")
        env: gymnasium.Env[Any, Any] = from_dm_control(
            domain, task, render_mode=render_mode, **options
        )
    else:
        try:
            bare = gymnasium.make(name, render_mode=render_mode)
        except gymnasium.error.Error as error:
            raise ValueError(f"unknown Gymnasium environment {name!r}: {error}") from None
        env = Concurrent(bare, **options)
    if isinstance(env.action_space, spaces.Discrete):
        return env
    return Discretised(env, config.actions)


def reward_scale(config: Config, envs: Envs) -> float:
    """The factor on rewards in learning: one that makes a period's largest reward 1."""
    if config.reward_scale is not None:
        return config.reward_scale
    if isinstance(envs, TaskVectorEnv):
        return 1 / (envs.task.reward_per_s * envs.timing.longest_period_s)
    return 1.0
