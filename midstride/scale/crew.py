"""The actors of a training, and the calls that they are doing: one each at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from midstride.scale.cluster import Cluster, Reference
from midstride.scale.parcels import Call, Member

ROLES = ("memory", "fitter", "updater", "collector", "judge")
_POLL_S = 0.5  # how often signals are looked at, when nothing happens
_IN_A_ROW = 5  # actors of a role that may be lost before any of them has done anything


class Crew:
    """Who is there, and what they are doing."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.members: dict[str, list[Member]] = {role: [] for role in ROLES}
        self.names = 0  # of actors so far
        self.most_in_a_row = _IN_A_ROW
        self._in_a_row: dict[str, int] = {}
        self._calls: dict[Reference, Call] = {}

    def start(self, role: str, place: int, arguments: tuple[Any, ...], generation: int) -> Member:
        """A new actor in a place; it is ready when its `setup` has ended."""
        member = Member(role, place, self.names, self.cluster.start(role, arguments))
        self.names += 1
        self.members[role].append(member)
        self.call(member, "setup", None, (), 1, generation)
        return member

    def call(
        self,
        member: Member,
        kind: str,
        about: Any,
        given: tuple[Any, ...],
        returns: int,
        generation: int,
    ) -> None:
        first, *data = self.cluster.call(member.actor, kind, given, returns)
        member.is_busy = True
        self._calls[first] = Call(kind, member, about, data, generation)

    def ended(self) -> Iterator[tuple[Call, Any]]:
        """Calls that have ended, and what came of each: what it returned, or an error."""
        for reference in self.cluster.wait(list(self._calls), _POLL_S):
            call = self._calls.pop(reference)
            call.member.is_busy = False
            found: Any
            try:
                found = self.cluster.get(reference)
            except Exception as error:
                found = error
            else:
                if call.kind != "setup":
                    self._in_a_row[call.member.role] = 0
            yield call, found

    def lose(self, member: Member, why: Exception) -> None:
        """An actor is gone; an error if those of its role are always lost at once."""
        role = member.role
        self._in_a_row[role] = self._in_a_row.get(role, 0) + 1
        if self._in_a_row[role] > self.most_in_a_row:
            many = {"memory": "memories"}.get(role, f"{role}s")
            raise RuntimeError(
                f"{self._in_a_row[role]} {many} in a row were lost before one of them did "
                f"anything: {why}"
            )
        self.cluster.stop(member.actor)
        self.members[role].remove(member)

    def are_in_step(self, generation: int) -> bool:
        """Whether all fitters are there, with the same state."""
        return all(one.is_ready and one.generation == generation for one in self.members["fitter"])

    def stop(self) -> None:
        """End all actors."""
        for role in ROLES:
            for member in self.members[role]:
                self.cluster.stop(member.actor)
