"""Policies that are programs: TorchScript and `module:callable`. Loading one runs its code."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.extras import missing
from midstride.policies.archive import first_line
from midstride.policies.callables import as_policy


class TorchScriptPolicy:
    """A TorchScript program: observations (n, columns) in, actions or what tells them out."""

    observation_size: int | None = None

    def __init__(self, program: Any, torch: Any, path: Path) -> None:
        self.description: dict[str, Any] = {"kind": "torchscript", "action": {"kind": "outputs"}}
        self._program, self._torch, self._path = program, torch, path

    def __reduce__(self) -> Any:
        """Another process reads the file itself."""
        return read_torchscript, (self._path,)

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """There is nothing to forget."""

    def __call__(self, observation: Any) -> NDArray[Any]:
        given = np.asarray(observation, np.float32)
        with self._torch.no_grad():
            found = self._program(self._torch.from_numpy(np.atleast_2d(given).copy()))
        first = found[0] if isinstance(found, (tuple, list)) else found
        rows = np.asarray(first.cpu().numpy())
        return rows[0] if given.ndim == 1 else rows


def read_torchscript(path: Path) -> TorchScriptPolicy:
    """The program in a file that `torch.jit.save` wrote."""
    try:
        import torch
    except ModuleNotFoundError:
        raise missing(f"running {path}", "torch") from None
    try:
        program = torch.jit.load(str(path), map_location="cpu").eval()
    except (RuntimeError, OSError, ValueError):
        raise ValueError(
            f"{path} is no TorchScript program; if it is a state dict (CleanRL, a checkpoint), "
            "write a module with a function that makes its network, loads the weights and acts, "
            "and give module:function with --trust"
        ) from None
    return TorchScriptPolicy(program, torch, path.absolute())


def import_policy(name: str) -> Any:
    """The policy that `module:callable` names; a class is made without arguments.

    The module is looked for in the folder that one is in, too.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        acts = found() if inspect.isclass(found) else found
    except Exception as error:  # whatever the user's own code raises
        raise ValueError(
            f"the policy {name} cannot be made: {type(error).__name__}: {first_line(error)}"
        ) from None
    return as_policy(acts, batched=bool(getattr(acts, "batched", False)))
