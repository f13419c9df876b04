"""Where policies of others come from: by the ending of a file, or by a name in Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midstride.policies import Policy

_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_OTHERS_FOLDERS = ("model.safetensors", "pytorch_model.bin")
_STATE_DICTS = (".pth", ".ckpt", ".bin", ".cleanrl_model", ".safetensors")
_PICKLES = (".pkl", ".pickle", ".joblib")
_BY_A_MODULE = (
    "write a module with a function that makes its network, loads the weights and acts, and give "
    "module:function with --trust (in Python: trust=True)"
)
SOURCES = (
    "the folder of a finished run, a .zip of Stable-Baselines3, an .onnx file, or with --trust "
    "a TorchScript .pt file or module:callable"
)


def is_foreign(source: str | Path) -> bool:
    """Whether this names a policy that was not trained here."""
    path = Path(source)
    if path.is_dir():
        return any((path / name).exists() for name in _OTHERS_FOLDERS)
    return path.exists() or path.suffix != "" or _CALLABLE.fullmatch(str(source)) is not None


def read_foreign(source: str | Path, trust: bool, activation: str | None = None) -> Policy:
    """A policy of others. Without trust, nothing that its author wrote is run."""
    path = Path(source)
    if path.is_dir():
        raise ValueError(
            f"{path} holds weights without the program that they belong to (LeRobot, Hugging "
            f"Face): {_BY_A_MODULE}"
        )
    if not path.exists() and _CALLABLE.fullmatch(str(source)):
        return _trusted(str(source), trust, "importing a module runs its code")
    if not path.exists():
        raise ValueError(f"there is no {path}: give {SOURCES}")
    if path.suffix == ".zip":
        from midstride.policies.sb3 import read_sb3

        return read_sb3(path, activation)
    if path.suffix == ".onnx":
        from midstride.policies.onnx import read_onnx

        return read_onnx(path)
    if path.suffix in (".pt", ".ts", ".torchscript"):
        return _trusted(path, trust, "a TorchScript file is a program")
    if path.suffix in _STATE_DICTS:
        raise ValueError(
            f"{path} holds weights without the program that they belong to: {_BY_A_MODULE}"
        )
    if path.suffix in _PICKLES:
        raise ValueError(f"{path} is a pickle, which could run code: {_BY_A_MODULE}")
    raise ValueError(f"{path} is no policy that is known here: give {SOURCES}")


def _trusted(source: str | Path, trust: bool, why: str) -> Any:
    if not trust:
        raise ValueError(
            f"{why}: if you trust who wrote {source}, say --trust (in Python: trust=True)"
        )
    from midstride.policies.trusted import import_policy, read_torchscript

    return read_torchscript(source) if isinstance(source, Path) else import_policy(source)
