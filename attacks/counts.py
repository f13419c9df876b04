"""What attacks count. Everything but the number of tries must be 0."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from attacks.children import Ended

KINDS = (
    "lost", "doubled", "tracebacks", "hangs", "code executed", "files outside", "other",
)  # fmt: skip
_NOTED = 20  # troubles that are told in words


@dataclass
class Counts:
    """Tries of one kind, and what went wrong."""

    tries: int = 0
    troubles: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    notes: list[str] = field(default_factory=list)
    of_which: dict[str, int] = field(default_factory=dict)  # tries by what they met

    def add(self, kind: str, note: str, count: int = 1) -> None:
        """Something went wrong."""
        self.troubles[kind] += count
        if len(self.notes) < _NOTED:
            self.notes.append(f"{kind}: {note}")
            print(self.notes[-1], file=sys.stderr)  # at once: the rest may take an hour

    def met(self, what: str, count: int = 1) -> None:
        self.of_which[what] = self.of_which.get(what, 0) + count

    def watch(self, ended: Ended, what: str) -> None:
        """Count what any command may do wrong, however it is disturbed."""
        if ended.tracebacks:
            self.add("tracebacks", f"{what}: {ended.words}")
        if ended.hung:
            self.add("hangs", what)

    def expect_done(self, ended: Ended, what: str) -> None:
        """Count a command that nobody disturbed and that failed."""
        self.watch(ended, what)
        if ended.code != 0 and not ended.tracebacks and not ended.hung:
            self.add("lost", f"{what} cannot go on: {ended.words}")

    @property
    def total(self) -> int:
        return sum(self.troubles.values())
