"""Observations normalised as they were in training, from plain arrays."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from midstride.policies.archive import Archive, first_line, read_file

_LARGEST_FILE = 16 * 2**20
_NAMES = ("mean", "var", "epsilon", "clip")
_HOW_TO_WRITE = (
    "it is a pickle, which could run code: write its arrays in Python where it was made, "
    "`v = VecNormalize.load('vecnormalize.pkl', venv)` and then `numpy.savez('stats.npz', "
    "mean=v.obs_rms.mean, var=v.obs_rms.var, epsilon=v.epsilon, clip=v.clip_obs)`"
)


@dataclass(frozen=True)
class Normalization:
    """`clip((observation - mean) / sqrt(var + epsilon))`, as VecNormalize has it."""

    mean: NDArray[np.float64]  # (columns,)
    var: NDArray[np.float64]
    epsilon: float = 1e-8
    clip: float = 10.0

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.var.shape or not self.mean.size:
            raise ValueError(
                "mean and var must be one row of numbers each, of the same length, got shapes "
                f"{self.mean.shape} and {self.var.shape}"
            )
        numbers = (*self.mean, *self.var, self.epsilon)
        if not np.isfinite(numbers).all() or (self.var < 0).any() or not self.clip > 0:
            raise ValueError(
                "mean, var and epsilon must be finite, var at least 0 and clip above 0"
            )
        if self.epsilon < 0 or (self.var + self.epsilon <= 0).any():
            raise ValueError("var + epsilon must be above 0")

    def __call__(self, observation: Any) -> NDArray[np.float32]:
        """Of one observation or a batch of them."""
        scaled = (np.asarray(observation) - self.mean) / np.sqrt(self.var + self.epsilon)
        return np.clip(scaled, -self.clip, self.clip).astype(np.float32)


class NormalizedPolicy:
    """A policy that sees normalised observations."""

    def __init__(self, policy: Any, normalization: Normalization) -> None:
        size = normalization.mean.size
        if policy.observation_size not in (None, size):
            raise ValueError(
                f"the policy observes {policy.observation_size} columns, its normalisation has "
                f"{size}"
            )
        self.policy, self.normalization = policy, normalization
        self.description = {**policy.description, "normalized": True}
        self.observation_size = size

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        self.policy.reset(which)

    def __call__(self, observation: Any) -> Any:
        given = np.asarray(observation)
        if given.ndim not in (1, 2) or given.shape[-1] != self.observation_size:
            raise ValueError(
                f"this policy observes {self.observation_size} columns, got shape {given.shape}"
            )
        return self.policy(self.normalization(given))


def read_normalization(path: str | Path) -> Normalization:
    """From mean and var, and epsilon and clip where they are not 1e-8 and 10.

    A file of NumPy (.npz), of safetensors, or JSON. A pickle of VecNormalize is refused.
    """
    path = Path(path)
    try:
        return _normalization(_read(path))
    except ValueError as error:
        raise ValueError(f"the normalisation in {path} cannot be read: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    if path.suffix not in (".npz", ".safetensors", ".json", ".pkl", ".pickle"):
        raise ValueError("it must be a .npz, .safetensors or .json file")
    content = read_file(path, _LARGEST_FILE)
    if path.suffix in (".pkl", ".pickle") or content[:1] == b"\x80":
        raise ValueError(_HOW_TO_WRITE)
    if path.suffix == ".npz":
        return _read_npz(content)
    if path.suffix == ".safetensors":
        try:
            return dict(load_tensors(content))
        except SafetensorError as error:
            raise ValueError(f"it is damaged ({first_line(error)})") from None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(found, dict):
        raise ValueError("it holds no names and values")
    return found


def _read_npz(content: bytes) -> dict[str, Any]:
    archive = Archive(content)
    found = {}
    for name in _NAMES:
        if f"{name}.npy" in archive.names:
            array = archive.read(f"{name}.npy", _LARGEST_FILE)
            try:
                found[name] = np.load(io.BytesIO(array), allow_pickle=False)
            except (ValueError, EOFError, OSError, MemoryError, SyntaxError):
                raise ValueError(f"its {name} is no plain array of numbers") from None
    return found


def _normalization(found: dict[str, Any]) -> Normalization:
    missing = [name for name in ("mean", "var") if name not in found]
    if missing:
        raise ValueError(
            f"it has no {missing[0]}: it needs mean and var, and may have {_NAMES[2:]}"
        )
    arrays = {}
    for name in _NAMES:
        if name in found:
            try:
                arrays[name] = np.asarray(found[name], np.float64)
            except (ValueError, TypeError, OverflowError):
                raise ValueError(f"its {name} must be numbers") from None
    for name in ("epsilon", "clip"):
        if name in arrays and arrays[name].size != 1:
            raise ValueError(f"its {name} must be one number")
    scalars = {name: float(arrays[name].item()) for name in _NAMES[2:] if name in arrays}
    return Normalization(arrays["mean"], arrays["var"], **scalars)
