"""Policies as objects: NumPy in, NumPy out, no learning framework.

The same code acts in training, in evaluation and on a robot. A saved policy is a safetensors file
of weights and a JSON file that says what they are; loading one runs nobody's code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from midstride.disk.files import write_whole
from midstride.policies.actor import ActorPolicy
from midstride.policies.cem import CemPolicy
from midstride.policies.q import QPolicy

WEIGHTS, DESCRIPTION = "policy.safetensors", "policy.json"
_KINDS = {"q": QPolicy, "cem": CemPolicy, "actor": ActorPolicy}


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


def save_policy(policy: ActorPolicy | CemPolicy | QPolicy, folder: Path) -> None:
    """Write weights and description, each whole or not at all."""
    arrays = {name: np.asarray(array, order="C") for name, array in policy.weights.items()}
    write_whole(folder / WEIGHTS, save_tensors(arrays))
    write_whole(folder / DESCRIPTION, json.dumps(policy.description, indent=2) + "\n")


def load(run: str | Path) -> ActorPolicy | CemPolicy | QPolicy:
    """The trained policy of a run folder."""
    folder = Path(run)
    if not (folder / WEIGHTS).exists():
        raise ValueError(
            f"{folder} holds no trained policy ({WEIGHTS} is missing): give the folder of a "
            "finished run"
        )
    try:
        weights = load_tensors((folder / WEIGHTS).read_bytes())
        description = json.loads((folder / DESCRIPTION).read_text())
        policy = _KINDS[description["kind"]](weights, description)
        if policy.observation_size < 1:  # or an error, if the weights are of something else
            raise ValueError("it observes nothing")
    except (SafetensorError, ValueError, OSError, LookupError, TypeError) as error:
        raise ValueError(f"the policy in {folder} cannot be read: {error}") from None
    return policy


__all__ = ["ActorPolicy", "CemPolicy", "Policy", "QPolicy", "load", "save_policy"]
