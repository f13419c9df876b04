"""Does a policy fit an environment? And what do the outputs of a network mean there?"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.finite import check_finite
from midstride.policies.archive import first_line
from midstride.policies.callables import BatchPolicy, RowPolicy, as_policy

_EXACT = ("q", "cem", "sb3")  # kinds whose actions need no second look


def fit(policy: Any, observation_space: Any, action_space: Any) -> Any:
    """The policy as one that acts in these spaces, or one sentence why it cannot.

    policy: anything that `as_policy` takes.
    What a policy knows of itself is compared before anything runs, and a network is tried once; the
    actions of one that knows little are looked at when it first acts. Outputs of a network (ONNX,
    TorchScript) become actions: whole numbers as they are, one value for each choice by the
    largest, continuous ones cut at the bounds.
    """
    policy = policy.policy if isinstance(policy, FittedPolicy) else as_policy(policy)
    said = _description(policy)
    check_observation(policy, observation_space)
    _check_action(said.get("action"), action_space)
    if said.get("kind") in _EXACT:
        return policy
    fitted = FittedPolicy(policy, observation_space, action_space)
    fitted.try_network()
    return fitted


def _description(policy: Any) -> dict[str, Any]:
    """What a policy says of itself; one that somebody wrote by hand need not say anything."""
    said: dict[str, Any] = getattr(policy, "description", {})
    return said


def check_observation(policy: Any, space: Any) -> None:
    """An error if the space is not what the policy was trained on."""
    if policy.observation_size is None:
        return
    state = space.spaces.get("state") if isinstance(space, spaces.Dict) else space
    shape = getattr(state, "shape", None)
    trained = _description(policy).get("observation_shape")
    wanted = tuple(trained) if trained else (policy.observation_size,)
    if shape != wanted:
        columns = wanted[0] if len(wanted) == 1 else wanted
        raise ValueError(
            f"the policy observes {columns} columns, the environment gives "
            f"{shape or _said(space)}: evaluate it on the task and knowledge that it was trained "
            "with"
        )


def _check_action(trained: dict[str, Any] | None, space: Any) -> None:
    """An error if actions of the space are not those that the policy was trained to give."""
    if trained is None or trained["kind"] == "outputs":
        return
    if trained["kind"] == "box":
        if not isinstance(space, spaces.Box) or list(space.shape) != trained["shape"]:
            raise ValueError(_other(f"a Box of shape {tuple(trained['shape'])}", space))
        for name, mine in (("low", space.low), ("high", space.high)):
            # They were printed with 8 digits.
            if not np.allclose(np.array(trained[name]), mine, rtol=1e-4, atol=1e-6):
                raise ValueError(
                    f"the policy's actions have other bounds ({name} {trained[name]}) than the "
                    f"environment's ({mine.tolist()}): wrap it as it was in training"
                )
        return
    kinds: dict[str, tuple[type[Any], Any]] = {
        "discrete": (spaces.Discrete, "n"),
        "multi_discrete": (spaces.MultiDiscrete, "nvec"),
        "multi_binary": (spaces.MultiBinary, "n"),
    }
    kind, name = kinds[trained["kind"]]
    has = np.asarray(getattr(space, name, ())).tolist()
    if not isinstance(space, kind) or has != trained["choices"]:
        raise ValueError(_other(f"{kind.__name__}({trained['choices']})", space))


def _other(trained: str, space: Any) -> str:
    return f"the policy was trained to give {trained}, the environment takes {_said(space)}"


def _said(space: Any) -> str:
    """A space on one line."""
    return " ".join(str(space).split())[:200]


class FittedPolicy:
    """A policy of others whose outputs are made actions of one space, and looked at first."""

    def __init__(self, policy: Any, observation_space: Any, action_space: Any) -> None:
        self.policy = policy
        self.description = _description(policy)
        self.observation_size: int | None = policy.observation_size
        self._seen, self._space = observation_space, action_space
        self._is_raw = self.description.get("action", {}).get("kind") == "outputs"
        self._is_new = True

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        self.policy.reset(which)

    def __call__(self, observation: Any) -> Any:
        """An action, or one for each of a batch."""
        n = self._rows(observation)
        if isinstance(observation, np.ndarray):
            check_finite(observation)
        found = np.asarray(
            self._first(observation, n) if self._is_new else self._act(observation, n)
        )
        actions = self._raw(found, n) if self._is_raw else self._shaped(found, n)
        if self._is_new:
            self._check(actions)
            self._is_new = False
        if n is not None:
            return actions
        return int(actions[0]) if isinstance(self._space, spaces.Discrete) else actions[0]

    def try_network(self) -> None:
        """An error if a network's outputs tell no action; it remembers nothing of the trial."""
        if self._is_raw and isinstance(self._seen, spaces.Box):
            seen = np.ones(self._seen.shape, self._seen.dtype)
            self._raw(np.asarray(self._first(seen, None)), None)

    def _rows(self, observation: Any) -> int | None:
        """How many observations of a batch there are, None for a single one."""
        space, given = self._seen, observation
        while isinstance(space, spaces.Dict):
            name = next(iter(space))
            space, given = space[name], given[name]
        shape = np.shape(given)
        return None if shape == space.shape else shape[0]

    def _act(self, observation: Any, n: int | None) -> Any:
        if isinstance(self.policy, (RowPolicy, BatchPolicy)):
            return self.policy.act(observation, n)
        return self.policy(observation)

    def _first(self, observation: Any, n: int | None) -> Any:
        """The first time, whatever it raises is a sentence."""
        try:
            return self._act(observation, n)
        except Exception as error:  # whatever the user's own code raises
            raise ValueError(
                "the policy cannot act on what the environment observes: "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error

    def _shaped(self, found: NDArray[Any], n: int | None) -> NDArray[Any]:
        """Actions as they are, (n, ...); also of one row where an axis was left out."""
        shape = (n or 1, *self._space.shape)
        if found.size != int(np.prod(shape)) or (n is not None and len(found) != n):
            raise ValueError(self._unlike(found, n))
        return found.reshape(shape)

    def _raw(self, found: NDArray[Any], n: int | None) -> NDArray[Any]:
        """Actions that the outputs of a network tell."""
        space = self._space
        is_chosen = found.dtype.kind in "iu"
        if not is_chosen and isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            rows = found.reshape(n or 1, -1) if found.size else found
            choices = np.atleast_1d(space.n if isinstance(space, spaces.Discrete) else space.nvec)
            if rows.ndim != 2 or rows.shape[1] != choices.sum():
                raise ValueError(self._unlike(found, n))
            parts = np.split(rows, np.cumsum(choices)[:-1], axis=1)
            best = np.stack([part.argmax(axis=1) for part in parts], axis=1)
            return best[:, 0] + space.start if isinstance(space, spaces.Discrete) else best
        actions = self._shaped(found, n)
        return np.clip(actions, space.low, space.high) if isinstance(space, spaces.Box) else actions

    def _check(self, actions: NDArray[Any]) -> None:
        is_whole = actions.dtype.kind in "iub"
        if isinstance(self._space, spaces.Box):
            if actions.dtype.kind not in "iubf" or not np.isfinite(actions).all():
                raise ValueError("the policy's first action is not all finite numbers")
        elif not is_whole or not self._space.contains(actions[0].astype(self._space.dtype)):
            raise ValueError(
                f"the policy's first action is {str(actions[0])[:80]}, the environment takes "
                f"{_said(self._space)}"
            )

    def _unlike(self, found: NDArray[Any], n: int | None) -> str:
        of = "one observation" if n is None else f"{n} observations"
        return (
            f"the policy gives shape {found.shape} for {of}, the environment takes "
            f"{_said(self._space)}"
        )
