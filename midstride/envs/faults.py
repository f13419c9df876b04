"""What environments do wrong, said in one sentence: whose fault it was, when, and what it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.finite import first_misfit, is_finite

if TYPE_CHECKING:
    from midstride.envs.learnable import LearnableEnvs
    from midstride.envs.vector import Step


# An environment that ends the program would end it with what it likes, as a success perhaps.
_RAISED = (Exception, SystemExit)


class Fault(ValueError):
    """An environment failed, or gave what nothing can be learned from."""


@contextmanager
def closed_after(envs: LearnableEnvs) -> Iterator[None]:
    """Close environments in the end; an error of before is the one that is told."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            envs.close()
        raise
    envs.close()


# --- Numbers that are none: of all environments at once, in every step ---------------------------


def check_start(envs: LearnableEnvs, observation: Any) -> None:
    """An error if an episode starts with an observation that is not of finite numbers."""
    _check_observation(envs, observation, "when it was reset")


def check_step(envs: LearnableEnvs, step: Step, following: Any, steps: int) -> None:
    """An error if anything that a step gave is not a finite number.

    following: what is observed next, where episodes have ended that of their successors
    steps: each environment has taken, this one included
    """
    for reward in (step.reward_before_switch, step.reward_after_switch):
        if not is_finite(reward):
            (i,) = first_misfit(reward)
            raise Fault(
                f"environment {i} of {envs.num_envs} gave the reward {reward[i]:g} in its "
                f"step {steps:,}: a reward must be a finite number"
            )
    when = f"in its step {steps:,}"
    _check_observation(envs, step.observation_next, when)
    if step.observation_switch is not None:
        _check_observation(envs, step.observation_switch, f"at the switch {when}")
    if step.observation_next is not following:
        _check_observation(envs, following, f"when it was reset after its step {steps:,}")


def _check_observation(envs: LearnableEnvs, observation: Any, when: str) -> None:
    parts = observation if isinstance(observation, dict) else {"": observation}
    for name, part in parts.items():
        if not is_finite(part):
            i, *place = first_misfit(part)
            value, where = part[(i, *place)], _place(envs, name, part, place)
            raise Fault(
                f"environment {i} of {envs.num_envs} observed {value:g} {where}{when}: an "
                "observation must be of finite numbers"
            )


def _place(envs: LearnableEnvs, name: str, part: NDArray[Any], place: list[int]) -> str:
    """Which number of an observation it was, by the name of its column where that is known."""
    columns = envs.layout.columns if name in ("", "state") and len(place) == 1 else ()
    if len(columns) == part.shape[-1]:
        return f"in column {columns[place[0]]} "
    within = f"{name}{place}" if place else name
    return f"at {within} " if within else ""


# --- Anything else: of one environment that others wrote -----------------------------------------


class Guarded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of others: whatever it raises or wrongly returns is a `Fault`."""

    def __init__(self, env: gymnasium.Env[Any, Any], task: str, number: int) -> None:
        super().__init__(env)
        self._who = f"{task}, environment {number}"
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        when = "its reset" if not self._steps else f"its reset after step {self._steps:,}"
        try:
            observation, info = self.env.reset(seed=seed, options=options)
        except _RAISED as error:
            raise Fault(f"{self._who}: {when} failed: {said(error)}") from error
        self._check(observation, when)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._steps += 1
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        except _RAISED as error:
            raise Fault(f"{self._who}: its step {self._steps:,} failed: {said(error)}") from error
        if type(reward) not in (float, np.float64) and not _is_number(reward):
            raise Fault(
                f"{self._who}: the reward of its step {self._steps:,} is {reward!r:.60}: it must "
                "be a number"
            )
        self._check(observation, f"its step {self._steps:,}")
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        try:
            self.env.close()
        except _RAISED as error:
            raise Fault(f"{self._who}: its close failed: {said(error)}") from error

    def _check(self, observation: Any, when: str) -> None:
        wrong = _misfit(self.observation_space, observation)
        if wrong:
            raise Fault(f"{self._who}: the observation of {when} {wrong}")


def _misfit(space: gymnasium.Space[Any], observation: Any) -> str | None:
    """What is wrong with an observation: its shape, or its type. What is in it is looked at later.

    Numbers beyond the bounds of the space are let pass: many environments give some.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, dict) or observation.keys() != space.spaces.keys():
            return f"is not a dictionary of {', '.join(space.spaces)}, as its space is"
        parts = {name: _misfit(part, observation[name]) for name, part in space.spaces.items()}
        return next((f"is wrong at {name}: it {w}" for name, w in parts.items() if w), None)
    if not isinstance(space, spaces.Box):
        return None
    shape = getattr(observation, "shape", None)
    found = observation if shape is not None else _as_array(observation)
    if found is None or found.shape != space.shape:
        got = "rows of several lengths" if found is None else f"shape {found.shape}"
        return f"has {got}: its space says {space.shape}"
    if found.dtype != space.dtype and not np.can_cast(found.dtype, space.dtype, "same_kind"):
        return f"is of type {found.dtype}: its space says {space.dtype}"
    return None


def _as_array(observation: Any) -> NDArray[Any] | None:
    try:
        return np.asarray(observation)
    except ValueError:  # ragged
        return None


def _is_number(value: Any) -> bool:
    array = _as_array(value)
    return array is not None and array.shape == () and array.dtype.kind in "fiub"


def said(error: BaseException) -> str:
    """What an error says, on one line, with its type."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return text if isinstance(error, Fault) else f"{kind}: {text}" if text else kind
