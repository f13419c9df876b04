"""Policies as objects: NumPy in, NumPy out, no learning framework.

The same code acts in training, in evaluation and on a robot. A saved policy is a safetensors file
of weights and a JSON file that says what they are; loading one runs nobody's code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from midstride.disk.files import write_whole
from midstride.disk.read import Hints, parse_json, read_bytes
from midstride.disk.tensors import digest, read_tensors, write_tensors
from midstride.finite import is_finite
from midstride.policies.cem import CemPolicy
from midstride.policies.check import check_description, check_policy
from midstride.policies.q import QPolicy
from midstride.settings import one_line

WEIGHTS, DESCRIPTION = "policy.safetensors", "policy.json"
_SEALED = "sealed"  # in the description: the weights carry checksums, of it and of themselves
_ABOUT: Hints = {
    _SEALED: bool, "environment": dict, "agent": str, "columns": tuple[str, ...], "units": dict,
}  # fmt: skip
_LARGEST = 2**30  # bytes of weights
_KINDS: dict[str, Any] = {"q": QPolicy, "cem": CemPolicy}


class Policy(Protocol):
    """What acts: `policy(observation) -> action`, or for a batch of them.

    `description` says what it is and what it was trained for: the environment's settings, the
    columns of the observation, and what their numbers are in units of.
    """

    description: dict[str, Any]

    @property
    def observation_size(self) -> int:
        """Columns of the observation, or of its `state`."""
        ...

    def __call__(self, observation: Any) -> Any: ...

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """An episode begins, everywhere or in some environments of a batch."""
        ...


def save_policy(policy: QPolicy | CemPolicy, folder: Path) -> None:
    """Write weights and description, each whole or not at all; an error if they cannot act."""
    for name, array in policy.weights.items():
        if not is_finite(np.asarray(array)):
            raise ValueError(f"the policy is not saved: {name} is not of finite numbers")
    description = json.dumps({**policy.description, _SEALED: True}, indent=2, allow_nan=False)
    text = f"{description}\n"
    # The weights name the description that they belong to.
    write_tensors(folder / WEIGHTS, policy.weights, {"description": digest(text.encode())})
    write_whole(folder / DESCRIPTION, text)


def load(run: str | Path) -> QPolicy | CemPolicy:
    """The trained policy of a run folder."""
    folder = Path(run)
    if not (folder / WEIGHTS).exists():
        raise ValueError(
            f"{folder} holds no trained policy ({WEIGHTS} is missing): give the folder of a "
            "finished run"
        )
    try:
        text = read_bytes(folder / DESCRIPTION)
        description = parse_json(text, DESCRIPTION, {"kind": Literal["q", "cem"]}, _ABOUT)
        is_sealed = description.pop(_SEALED, False)  # policies of before have no checksum
        weights, about = read_tensors(folder / WEIGHTS, is_sealed, _LARGEST)
        if about.get("description", "") != (digest(text) if is_sealed else ""):
            raise ValueError(f"{WEIGHTS} and {DESCRIPTION} are of different policies")
        check_description(description)
        policy = _KINDS[description["kind"]](weights, description)
        check_policy(policy)
    except ValueError as error:
        raise ValueError(f"the policy in {folder} cannot be read: {one_line(error)}") from None
    return policy


__all__ = ["CemPolicy", "Policy", "QPolicy", "load", "save_policy"]
