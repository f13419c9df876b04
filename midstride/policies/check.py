"""Whether a policy that was read from files can act: tried once, before anybody relies on it."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np

from midstride.disk.read import Hints, check_record
from midstride.policies.actor import ActorPolicy
from midstride.policies.cem import SIDES, CemPolicy
from midstride.policies.q import QPolicy
from midstride.settings import Range, checked, one_line

_MOST_NUMBERS = 2**26  # that a layer may have, of all samples of a search together
_Count = Annotated[int, Range(1, 10_000)]
_Share = Annotated[float, Range(0, 1)]
_SEARCH: Hints = {
    "rounds": _Count, "samples": _Count, "elites": _Count, "start": Annotated[float, Range(0, 1e3)],
    "floor": _Share, "smoothing": _Share,
}  # fmt: skip
_BOUNDS: Hints = {"low": tuple[float, ...], "high": tuple[float, ...]}
_ACTOR: Hints = {"squash": Literal["tanh", "clip"], "activation": Literal["relu", "tanh"]}
_CEM: Hints = {"blocks": dict, **_BOUNDS, "settings": list, "search": dict}


def check_description(description: dict[str, Any]) -> None:
    """An error in one sentence, if a description is not of its kind of policy."""
    if description["kind"] == "q":
        actions = description.get("actions")
        if actions is not None and not _is_table(actions):
            raise ValueError("its actions are not a list of numbers, or of lists of them")
        return
    is_actor = description["kind"] == "actor"
    check_record(description, _BOUNDS if is_actor else _CEM, _ACTOR if is_actor else None)
    if len(description["low"]) != len(description["high"]) or not description["low"]:
        raise ValueError("its bounds are of different actions")
    pairs = zip(description["low"], description["high"], strict=True)
    if not all(low <= high for low, high in pairs):
        raise ValueError("its lowest actions are above its highest")
    if is_actor:
        return
    if not _is_table(description["settings"]):
        raise ValueError("its settings are not a list of lists of numbers")
    if description.get("ends") is not None:
        most = len(description["low"]) + len(description["settings"][0])
        checked("ends", description["ends"], Annotated[int, Range(0, most - 1)])
    if not description["blocks"]:
        raise ValueError("it observes nothing")


def _is_table(rows: Any) -> bool:
    """Whether it is a list of numbers, or of lists of equally many."""
    if not isinstance(rows, list) or not rows:
        return False
    if isinstance(rows[0], list) and any(not isinstance(r, list) for r in rows):
        return False
    lines = rows if isinstance(rows[0], list) else [rows]
    numbers = all(isinstance(n, (int, float)) and abs(n) < 1e30 for line in lines for n in line)
    return numbers and len({len(line) for line in lines}) == 1


def check_policy(policy: ActorPolicy | CemPolicy | QPolicy) -> None:
    """An error in one sentence, if weights and description do not give an action."""
    _check_weights(policy)
    if isinstance(policy, CemPolicy):
        _check_search(policy)
    try:
        with np.errstate(all="ignore"):
            observation = _observation(policy)
            action = np.asarray(policy(observation))
            if isinstance(policy, QPolicy):
                _check_actions(policy, observation)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"it does not act: {one_line(error)}") from None
    if not np.isfinite(action).all():
        raise ValueError("it does not act: its action is not finite")
    policy.reset()


def _check_weights(policy: ActorPolicy | CemPolicy | QPolicy) -> None:
    for name, array in policy.weights.items():
        is_vector = "bias" in name or name.startswith("normal.")
        dimensions = 1 if is_vector else 2 if "weight" in name else 0
        if array.ndim != dimensions or array.dtype != np.float32 or not array.size:
            raise ValueError(f"{name!r} is not what a weight or a bias is")
        if not np.isfinite(array).all():
            raise ValueError(f"{name!r} has numbers that are not finite")


def _check_search(policy: CemPolicy) -> None:
    description = policy.description
    search = check_record(description["search"], _SEARCH)
    for name, ends in description["blocks"].items():
        start, stop = checked(name, ends, tuple[int, int])
        if not 0 <= start < stop <= _MOST_NUMBERS:
            raise ValueError(f"the columns of {name!r} are none")
    if search["elites"] > search["samples"]:
        raise ValueError("the search keeps more than it draws")
    widest = max(max(array.shape) for array in policy.weights.values())
    if search["samples"] * widest > _MOST_NUMBERS:
        raise ValueError("the search draws more than fits")


def _observation(policy: ActorPolicy | CemPolicy | QPolicy) -> Any:
    """One of zeros, as the weights ask for."""
    if policy.observation_size > _MOST_NUMBERS or policy.observation_size < 1:
        raise ValueError("it observes nothing, or too much")
    state = np.zeros(policy.observation_size, np.float32)
    if not isinstance(policy, CemPolicy) or not policy.sees:
        return state
    channels, left = divmod(policy.weights["patches.0.weight"].shape[1], SIDES[0] ** 2)
    places = policy.weights["image.0.weight"].shape[1] / len(policy.weights["patches.2.bias"])
    side = math.isqrt(int(places)) * math.prod(SIDES)
    if left or side * side * channels > _MOST_NUMBERS:
        raise ValueError("the image is of no size")
    return {"state": state, "image": np.zeros((side, side, channels), np.uint8)}


def _check_actions(policy: QPolicy, observation: Any) -> None:
    policy.reset()
    count = policy.values(observation[None]).shape[1]
    actions = policy.description.get("actions")
    if actions is not None and np.array(actions, np.float32).shape[0] != count:
        raise ValueError(f"it chooses between {count} actions, and describes {len(actions)}")
