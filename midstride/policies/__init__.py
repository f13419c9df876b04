"""Policies as objects: NumPy in, NumPy out, no learning framework.

The same code acts in training, in evaluation and on a robot. A saved policy is a safetensors file
of weights and a JSON file that says what they are; loading one runs nobody's code. Policies of
others are loaded too (`sources`), without running their code unless the user says so.
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
from midstride.policies.actor import ActorPolicy
from midstride.policies.callables import as_policy
from midstride.policies.cem import CemPolicy
from midstride.policies.check import check_description, check_policy
from midstride.policies.q import QPolicy
from midstride.policies.sources import is_foreign, read_foreign
from midstride.settings import one_line

WEIGHTS, DESCRIPTION = "policy.safetensors", "policy.json"
_SEALED = "sealed"  # in the description: the weights carry checksums, of it and of themselves
_ABOUT: Hints = {
    _SEALED: bool, "environment": dict, "agent": str, "columns": tuple[str, ...], "units": dict,
    "knowledge": tuple[str, ...], "latency": str,  # of one that was adapted to a latency
}  # fmt: skip
_LARGEST = 2**30  # bytes of weights
_KINDS: dict[str, Any] = {"q": QPolicy, "cem": CemPolicy, "actor": ActorPolicy}


class Policy(Protocol):
    """What acts: `policy(observation) -> action`, or for a batch of them.

    `description` says what it is and what it was trained for: the environment's settings, the
    columns of the observation, and what their numbers are in units of; of a policy of others, what
    its file says.
    """

    description: dict[str, Any]

    @property
    def observation_size(self) -> int | None:
        """Columns of the observation, or of its `state`; None where nobody knows."""
        ...

    def __call__(self, observation: Any) -> Any: ...

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """An episode begins, everywhere or in some environments of a batch."""
        ...


def save_policy(policy: ActorPolicy | CemPolicy | QPolicy, folder: Path) -> None:
    """Write weights and description, each whole or not at all; an error if they cannot act."""
    for name, array in policy.weights.items():
        if not is_finite(array):
            raise ValueError(f"the policy is not saved: {name} is not of finite numbers")
    about = {**policy.description, _SEALED: True}
    description = json.dumps(about, indent=2, allow_nan=False) + "\n"
    # The weights name the description that they belong to.
    write_tensors(folder / WEIGHTS, policy.weights, {"description": digest(description.encode())})
    write_whole(folder / DESCRIPTION, description)


def load(
    source: str | Path,
    trust: bool = False,
    *,
    normalize: str | Path | None = None,
    activation: str | None = None,
) -> Policy:
    """A policy: `policy(observation) -> action`, NumPy in and out.

    source: the folder of a finished run; a zip of Stable-Baselines3; an ONNX file; with trust, a
        TorchScript file or `module:callable`
    trust: whether code may run that comes with the policy
    normalize: a file with the mean and var of the observations in training (.npz, .safetensors,
        .json), where the policy saw them normalised
    activation: PyTorch's name of the activation function, where a zip does not say it
    """
    policy: Policy = (
        read_foreign(source, trust, activation) if is_foreign(source) else _load_run(Path(source))
    )
    if normalize is None:
        return policy
    from midstride.policies.normalize import NormalizedPolicy, read_normalization

    return NormalizedPolicy(policy, read_normalization(normalize))


def _load_run(folder: Path) -> ActorPolicy | CemPolicy | QPolicy:
    """The trained policy of a run folder."""
    if not (folder / WEIGHTS).exists():
        raise ValueError(
            f"{folder} holds no trained policy ({WEIGHTS} is missing): give the folder of a "
            "finished run"
        )
    try:
        text = read_bytes(folder / DESCRIPTION)
        description = parse_json(text, DESCRIPTION, {"kind": Literal["q", "cem", "actor"]}, _ABOUT)
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


__all__ = ["ActorPolicy", "CemPolicy", "Policy", "QPolicy", "as_policy", "load", "save_policy"]
