"""Ray as the cluster of a training: its roles as actors, what they return in the object store.

Actors are not restarted by Ray: the coordinator knows better what a new one must be given. What a
call returns belongs to the driver, so it outlives the actor that made it, but not its machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from midstride.scale.cluster import DataLost, Lost, Reference
from midstride.scale.roles import ROLES

_COMPUTES = ("collector", "updater", "fitter")  # the others mostly wait


class RayCluster:
    """The cluster that Ray is connected to.

    cores: of each collector, each updater and the fitter
    """

    def __init__(self, cores: float) -> None:
        import ray

        self._ray, self._cores = ray, cores
        self._kinds = {role: ray.remote(kind) for role, kind in ROLES.items()}

    @property
    def all_cores(self) -> float:
        return float(self._ray.cluster_resources().get("CPU", 0))

    def start(self, role: str, arguments: tuple[Any, ...]) -> Any:
        cores = self._cores if role in _COMPUTES else 0
        options = {"num_cpus": cores, "max_restarts": 0, "max_task_retries": 0}
        return self._kinds[role].options(**options).remote(*arguments)

    def call(self, actor: Any, method: str, arguments: tuple[Any, ...], returns: int) -> Any:
        found = getattr(actor, method).options(num_returns=returns).remote(*arguments)
        return found if returns > 1 else [found]

    def wait(self, references: Sequence[Reference], seconds: float) -> list[Reference]:
        every = list(references)
        ready, others = self._ray.wait(every, num_returns=1, timeout=seconds)
        if ready and others:
            ready += self._ray.wait(others, num_returns=len(others), timeout=0)[0]
        return list(ready)

    def get(self, reference: Reference) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, errors.ObjectLostError):
                raise DataLost(_first_line(error.cause)) from None
            raise error.cause from None
        except errors.ObjectLostError as error:
            raise DataLost(_first_line(error)) from None
        except errors.RayError as error:
            raise Lost(_first_line(error)) from None

    def stop(self, actor: Any) -> None:
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(actor, no_restart=True)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
