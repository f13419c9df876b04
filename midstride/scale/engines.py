"""Where trainings run: processes of this machine, or a Ray cluster."""

from __future__ import annotations

from functools import partial
from typing import Literal

from midstride.scale.jobs import Engine
from midstride.scale.local import run_jobs


def make_engine(name: Literal["local", "ray"], workers: int | None, address: str | None) -> Engine:
    """An engine by name; an error in one sentence if it cannot be had.

    workers: trainings at once (default: one per core)
    address: of the Ray cluster, HOST:PORT or auto (default: start one here)
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if name == "local":
        if address is not None:
            raise ValueError("--address is the address of a Ray cluster: add --engine ray")
        return partial(run_jobs, workers=workers)
    if name != "ray":
        raise ValueError(f"unknown engine {name!r}: choose from local, ray")
    from midstride.scale.ray import connect, run_on_ray

    connect(address, workers)
    return run_on_ray
