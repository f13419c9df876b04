"""What the coordinator asks of a cluster: start an actor, call it, wait, and hear that it is lost.

Ray is one (`actors.py`); tests have others, in one process and on a virtual clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Reference = Any  # to what a call will return; whoever is given one as an argument gets the value


class Lost(Exception):
    """An actor is gone, and with it what it was doing."""


class DataLost(Exception):
    """What a call was given is gone with the machine that held it; the actor itself is well."""


class Cluster(Protocol):
    """Actors on machines; none of these wait, but `wait` and `get`."""

    def start(self, role: str, arguments: tuple[Any, ...]) -> Any:
        """A new actor, as soon as there is room for it."""
        ...

    def call(self, actor: Any, method: str, arguments: tuple[Any, ...], returns: int) -> Any:
        """References to what a method will return, as a list; of one, itself in it."""
        ...

    def wait(self, references: Sequence[Reference], seconds: float) -> list[Reference]:
        """Those of which the calls have ended, well or not: at least one, or time is up."""
        ...

    def get(self, reference: Reference) -> Any:
        """What a call returned; `Lost`, `DataLost`, or what it raised."""
        ...

    def stop(self, actor: Any) -> None:
        """End an actor, if it is still there."""
        ...
