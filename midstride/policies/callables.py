"""Whatever acts in Python as a policy: functions, objects with state, models that predict."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class _Policy(Protocol):
    observation_size: int | None

    def __call__(self, observation: Any) -> Any: ...
    def reset(self, which: NDArray[np.bool_] | None = None) -> None: ...


@runtime_checkable
class _Predicts(Protocol):
    """A model of Stable-Baselines3 or of sb3-contrib."""

    def predict(self, observation: Any, **options: Any) -> Any: ...


@runtime_checkable
class _Forgets(Protocol):
    def reset(self) -> Any: ...


def as_policy(acts: Any, batched: bool = False) -> Any:
    """A policy from a function, an object that is called, or a model with `predict`.

    acts: `acts(observation) -> action`, for one observation at a time; an object that also has
        `reset()` is copied for each environment of a batch, so that their episodes stay apart.
        Or a model of Stable-Baselines3, which acts as `predict(..., deterministic=True)`.
        What is a policy already comes back as it is.
    batched: whether a function takes a whole batch (n, columns) and gives n actions
    """
    if isinstance(acts, _Policy):
        return acts
    if isinstance(acts, _Predicts):
        return PredictPolicy(acts)
    if not callable(acts):
        raise ValueError(
            f"a policy is called with an observation, got {type(acts).__name__}: give a function "
            "or an object with __call__ or predict"
        )
    return BatchPolicy(acts) if batched else RowPolicy(acts)


class RowPolicy:
    """Calls a function once for each observation. Flat observations: (n, columns) is a batch."""

    observation_size: int | None = None

    def __init__(self, acts: Callable[[Any], Any]) -> None:
        self.description: dict[str, Any] = {"kind": "callable", "name": _name(acts)}
        self._acts: Any = acts
        self._copies: list[Any] = []  # of an object with state, one for each environment

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """Objects that have something to forget are told to."""
        if which is None:
            self._copies = []
            if isinstance(self._acts, _Forgets):
                self._acts.reset()
            return
        for i in np.flatnonzero(which):
            if i < len(self._copies):
                self._copies[i].reset()

    def __call__(self, observation: Any) -> Any:
        return self.act(observation, _rows(observation))

    def act(self, observation: Any, n: int | None) -> Any:
        """Actions of a batch of n observations of any kind, or of a single one."""
        if n is None:
            return self._acts(observation)
        if isinstance(self._acts, _Forgets):
            self._copy(n)
        each = self._copies or [self._acts] * n
        return np.stack([np.asarray(each[i](_row(observation, i))) for i in range(n)])

    def _copy(self, n: int) -> None:
        try:
            while len(self._copies) < n:
                self._copies.append(copy.deepcopy(self._acts))
        except Exception as error:  # whatever the object's own parts raise
            raise ValueError(
                f"{_name(self._acts)} has a reset() but cannot be copied for each environment "
                f"({type(error).__name__}): let it take batches, as_policy(..., batched=True)"
            ) from None


class BatchPolicy:
    """Calls a function with batches; one observation is a batch of one."""

    observation_size: int | None = None

    def __init__(self, acts: Callable[[Any], Any]) -> None:
        self.description: dict[str, Any] = {"kind": "callable", "name": _name(acts)}
        self._acts: Any = acts

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """An object that has something to forget is told to, when all episodes begin."""
        if which is None and isinstance(self._acts, _Forgets):
            self._acts.reset()

    def __call__(self, observation: Any) -> Any:
        return self.act(observation, _rows(observation))

    def act(self, observation: Any, n: int | None) -> Any:
        """Actions of a batch of n observations of any kind, or of a single one."""
        if n is not None:
            return np.asarray(self._acts(observation))
        one = (
            {name: np.asarray(part)[None] for name, part in observation.items()}
            if isinstance(observation, dict)
            else np.asarray(observation)[None]
        )
        return np.asarray(self._acts(one))[0]


class PredictPolicy:
    """A model of Stable-Baselines3, recurrent ones of sb3-contrib included."""

    observation_size: int | None = None

    def __init__(self, model: _Predicts) -> None:
        self.description: dict[str, Any] = {"kind": "callable", "name": type(model).__name__}
        self._model = model
        # What it was trained on may have been normalised, by something beside it.
        made = getattr(model, "get_vec_normalize_env", None)
        self._normal = None if made is None else made()
        self._state: Any = None
        self._starts: NDArray[np.bool_] | None = None

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """The model is told where episodes begin; only recurrent ones listen."""
        if which is None or self._state is None:
            self._state, self._starts = None, None
        else:
            self._starts = np.asarray(which, bool)

    def __call__(self, observation: Any) -> Any:
        if self._normal is not None:
            observation = self._normal.normalize_obs(observation)
        action, self._state = self._model.predict(
            observation, state=self._state, episode_start=self._starts, deterministic=True
        )
        self._starts = None if self._state is None else np.zeros(np.shape(action)[:1] or 1, bool)
        return action


def _rows(observation: Any) -> int | None:
    """How many observations a batch has, None for a single one; by those that are flat."""
    state = observation["state"] if isinstance(observation, dict) else observation
    return len(state) if np.ndim(state) > 1 else None


def _row(observation: Any, i: int) -> Any:
    if isinstance(observation, dict):
        return {name: part[i] for name, part in observation.items()}
    return observation[i]


def _name(acts: Any) -> str:
    return str(getattr(acts, "__name__", type(acts).__name__))
