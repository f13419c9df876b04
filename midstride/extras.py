"""Packages that only an extra installs: where one is missing, a sentence says how to get it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_EXTRA_OF = {
    "matplotlib": "measure",
    "scipy": "measure",
    "imageio": "measure",
    "dm_control": "dmc",
    "mujoco.batch": "train",  # the package is there, but older than our own tasks need
    "jax": "train",
    "equinox": "train",
    "optax": "train",
    "chex": "train",
    "threadpoolctl": "train",
    "ray": "ray",
    "tensorboardX": "tensorboard",
    "onnxruntime": "onnx",
    "torch": "torchscript",
    "ruckig": "realtime",
    "msgspec": "realtime",
    "websockets": "realtime",
}
_SPELLED = {"mujoco.batch": "mujoco 3.17 or newer"}


class MissingExtra(ImportError):
    """A package is missing that an extra of midstride installs; the message says which."""


def missing(what: str, package: str) -> MissingExtra:
    """The error that `what` needs `package`, and how to install it."""
    extra = _EXTRA_OF[package]
    return MissingExtra(
        f"{what} needs {_SPELLED.get(package, package)}: pip install 'midstride[{extra}]'",
        name=package,
    )


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Where an import inside fails for want of an extra, say that `what` needs it.

    Other errors pass unchanged: a missing module that no extra installs is a mistake of ours.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = error.name or ""
        package = module if module in _EXTRA_OF else module.partition(".")[0]
        if package not in _EXTRA_OF:
            raise
        raise missing(what, package) from None
