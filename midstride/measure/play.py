"""Episodes by seed, at any latency: what a margin is measured in.

Episode k starts by `reset(seed=base + k)` and depends on nothing else, so that the same episode is
played at every latency, in any order, by any number of processes.
"""

from __future__ import annotations

import math
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.envs.concurrent import Concurrent
from midstride.envs.faults import Guarded
from midstride.envs.learnable import Environment
from midstride.envs.vector import interact
from midstride.envs.wrapped import WrappedSettings
from midstride.latency import Fixed, LatencyModel, OnScaleOf
from midstride.latency_text import read_latency
from midstride.measure.evaluate import EVALUATION_SCENE_SEED, acting
from midstride.measure.smoothness import Smoothness, smoothness
from midstride.policies.fit import fit
from midstride.timing import Thinker, Timing

_TOGETHER = 16  # environments of our own that are stepped at once


@dataclass(frozen=True)
class Played:
    """What came of one episode."""

    total: float  # return
    success: float | None  # 0 or 1, where the environment tells
    seconds: float  # in the world
    smoothness: Smoothness


class Place(Protocol):
    """Where episodes are played."""

    def timing(self) -> Timing:
        """At latency 0: its tick and its period."""
        ...

    def spaces(self, latency: LatencyModel) -> tuple[Any, Any]:
        """What is observed and what is done there."""
        ...

    def play(self, policy: Any, latency: LatencyModel, seeds: Sequence[int]) -> list[Played]: ...


# --- Somebody's environment, one episode after another -------------------------------------------


@dataclass
class Single:
    """Any Gymnasium environment, made concurrent.

    make_env: makes the bare one, or settings of ours that make a concurrent one
    knowledge, trained: of one that a function makes: what is observed of what is in flight, on the
        scale of the latency that the policy was made for
    """

    make_env: Callable[[], gymnasium.Env[Any, Any]] | WrappedSettings
    period_s: float | None = None
    step_s: float | None = None
    thinker: Thinker = "pipelined"
    knowledge: tuple[str, ...] = ()
    trained: LatencyModel | None = None
    _made: tuple[LatencyModel, gymnasium.Env[Any, Any]] | None = None

    def at(self, latency: LatencyModel) -> gymnasium.Env[Any, Any]:
        """The environment at a latency; the last one is kept."""
        if self._made is None or self._made[0] != latency:
            self.close()
            self._made = latency, self.make(latency)
        return self._made[1]

    def make(self, latency: LatencyModel, looks: bool = False) -> gymnasium.Env[Any, Any]:
        """A new one; looks: whether it tells what is observed at switches."""
        if isinstance(self.make_env, WrappedSettings):
            env = at_latency(self.make_env, latency).make_one(None, looks)
            return Guarded(env, self.make_env.task, 0)
        bare = self.make_env()
        if not isinstance(bare, gymnasium.Env):
            raise ValueError(f"make_env must make a Gymnasium environment, it made {bare!r}")
        env = Concurrent(
            bare,
            latency if self.trained is None else OnScaleOf(self.trained, latency),
            self.knowledge,
            observe_switch=looks,
            period=self.period_s,
            step_s=self.step_s,
            thinker=self.thinker,
        )
        return Guarded(env, str(bare), 0)

    def knowing(self, knowledge: tuple[str, ...], trained: LatencyModel) -> Single:
        """The same for a policy that knows of what is in flight, made for a latency."""
        if isinstance(self.make_env, WrappedSettings):
            changed: dict[str, Any] = {"knowledge": knowledge, "latency": trained}
            return replace(self, make_env=replace(self.make_env, **changed), _made=None)
        return replace(self, knowledge=knowledge, trained=trained, _made=None)

    def timing(self) -> Timing:
        found: Timing = self.at(Fixed(0.0)).get_wrapper_attr("timing")
        return found

    def spaces(self, latency: LatencyModel) -> tuple[Any, Any]:
        env = self.at(latency)
        return env.observation_space, env.action_space

    def play(self, policy: Any, latency: LatencyModel, seeds: Sequence[int]) -> list[Played]:
        env = self.at(latency)
        policy = fit(policy, env.observation_space, env.action_space)
        return [_episode(policy, env, seed) for seed in seeds]

    def close(self) -> None:
        if self._made is not None:
            self._made[1].close()
            self._made = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}


def _episode(policy: Any, env: gymnasium.Env[Any, Any], seed: int) -> Played:
    policy.reset()
    observation, _ = env.reset(seed=seed)
    total, seconds, over = 0.0, 0.0, False
    actions: list[Any] = []
    info: dict[str, Any] = {}
    while not over:
        action = policy(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        if not math.isfinite(reward):
            raise ValueError(
                f"the environment gave the reward {reward} in step {len(actions) + 1} of the "
                f"episode with seed {seed}: a reward must be a finite number"
            )
        total += float(reward)
        seconds += info["period_s"]
        actions.append(action)
        over = terminated or truncated
    success = next((info[name] for name in ("success", "is_success") if name in info), None)
    return Played(
        total,
        None if success is None else float(success),
        seconds,
        smoothness(np.asarray(actions), env.action_space, seconds),
    )


# --- Our own tasks, many episodes at once --------------------------------------------------------


@dataclass
class Together:
    """Environments of our own, which are quicker side by side."""

    environment: Environment

    def timing(self) -> Timing:
        envs = self._make(Fixed(0.0), 1)
        found = envs.timing
        envs.close()
        return found

    def _make(self, latency: LatencyModel, n: int) -> Any:
        judged = self.environment.for_evaluation(EVALUATION_SCENE_SEED)
        return at_latency(judged, latency).make(n)

    def spaces(self, latency: LatencyModel) -> tuple[Any, Any]:
        envs = self._make(latency, 1)
        envs.close()
        return envs.single_observation_space, envs.single_action_space

    def play(self, policy: Any, latency: LatencyModel, seeds: Sequence[int]) -> list[Played]:
        found: list[Played] = []
        for k in range(0, len(seeds), _TOGETHER):
            some = list(seeds[k : k + _TOGETHER])
            envs = self._make(latency, len(some))
            found += _side_by_side(policy, envs, some)
            envs.close()
        return found


def _side_by_side(policy: Any, envs: Any, seeds: list[int]) -> list[Played]:
    """One episode in each environment."""
    n, space = len(seeds), envs.single_action_space
    policy = fit(policy, envs.single_observation_space, space)
    policy.reset()
    totals, seconds = np.zeros(n), np.zeros(n)
    actions: list[list[Any]] = [[] for _ in range(n)]
    found: list[Played | None] = [None] * n
    for step in interact(envs, acting(policy), seeds, policy.reset):
        totals += step.reward
        seconds += step.period_s
        for i in range(n):
            if found[i] is None:
                actions[i].append(step.action[i])
        for i in np.flatnonzero(step.done).tolist():
            if found[i] is None:
                success = step.measures.get("success")
                found[i] = Played(
                    float(totals[i]),
                    None if success is None else float(success[i]),
                    float(seconds[i]),
                    smoothness(np.asarray(actions[i]), space, float(seconds[i])),
                )
        if all(one is not None for one in found):
            break
    return [one for one in found if one is not None]


def at_latency(environment: Any, latency: LatencyModel) -> Any:
    """The environment at another latency, measured on the scale that the policy knows."""
    trained = read_latency(environment.to_dict()["latency"])
    return replace(environment, latency=OnScaleOf(trained, latency))


# --- Several processes ---------------------------------------------------------------------------

_here: tuple[Any, Place] | None = None  # of a worker: what it plays, and where


class Workers:
    """Episodes played by several processes; the results are those of one."""

    def __init__(self, policy: Any, place: Place, jobs: int) -> None:
        """policy: one that can be pickled, or a function without arguments that loads it."""
        try:
            pickle.dumps((policy, place))
        except Exception as error:  # pickle raises whatever the object does
            raise ValueError(
                f"policy and environment cannot be sent to other processes ({error}): take jobs=1"
            ) from None
        context = multiprocessing.get_context("spawn")
        self._jobs = jobs
        self._pool = ProcessPoolExecutor(jobs, context, _begin, (policy, place))

    def play(self, latency: LatencyModel, seeds: Sequence[int]) -> list[Played]:
        parts = [list(seeds[k :: self._jobs]) for k in range(self._jobs)]
        try:
            futures = [self._pool.submit(_play, latency, part) for part in parts if part]
            answers = [future.result() for future in futures]
        except BrokenProcessPool:
            raise RuntimeError("a process that played episodes was killed: take --jobs 1") from None
        found: list[Any] = [None] * len(seeds)
        for k, answer in enumerate(answers):
            found[k :: self._jobs] = answer
        return found

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _begin(policy: Any, place: Place) -> None:
    global _here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    _here = policy() if isinstance(policy, Loads) else policy, place


def _play(latency: LatencyModel, seeds: Sequence[int]) -> list[Played]:
    assert _here is not None
    return _here[1].play(_here[0], latency, seeds)


@dataclass(frozen=True)
class Loads:
    """Loads a policy anew, in another process: some, such as ONNX, cannot be sent there."""

    load: Callable[..., Any]
    arguments: dict[str, Any]

    def __call__(self) -> Any:
        return self.load(**self.arguments)


def nothing(space: Any) -> Callable[[Any], Any]:
    """The policy that does nothing: zeros, within bounds; of discrete actions the first."""
    action: NDArray[Any] | int
    if isinstance(space, spaces.Box):
        action = np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
    elif isinstance(space, spaces.Discrete):
        action = int(space.start)
    else:
        raise ValueError(f"what doing nothing is in {space} is not known: give --floor a number")
    return lambda observation: action
