"""Kills (SIGKILL) of trainings and sweeps, at random moments and inside of writes.

Each victim is killed again and again, and goes on from what is on disk, until it has finished. The
folder is judged after every kill.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from attacks import judge, seam, works
from attacks.children import Ended, Setting, fork_workers, run, sweep_here
from attacks.counts import Counts
from attacks.progress import Bounds

SHARES = {"dqn": 0.66, "qtopt": 0.14, "sweep": 0.18, "sweep with workers": 0.02}
_INSIDE = 0.5  # share of kills inside of a write
_MOST_IN_A_ROW = 6  # kills of one victim, before it is left to finish


def attack(count: int, seed: int, place: Path, bounds: Bounds) -> dict[str, Counts]:
    """Kill `count` times in all; what went wrong, by kind of victim."""
    found = {}
    for number, (kind, share) in enumerate(SHARES.items()):
        rng = np.random.default_rng([seed, number])
        wanted = round(count * share)
        victim = _Training(kind, place) if kind in works.TRAININGS else _Sweep(kind, place)
        counts = found[f"SIGKILL of {kind}"] = Counts()
        with bounds.section(f"kills of {kind}", wanted) as section:
            while counts.tries < wanted and section.goes_on():
                _one_victim(victim, rng, counts, wanted, section.show)
        shutil.rmtree(victim.place, ignore_errors=True)
    return found


class _Victim:
    """A command that is killed; how long it takes, and how often it calls the system to write."""

    first: Setting = staticmethod(lambda: None)

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place = kind, place / kind.replace(" ", "-")
        shutil.rmtree(self.place, ignore_errors=True)
        self.work = self.made(self.place / "undisturbed")
        self.seconds = 0.0
        for _ in range(2):  # the first one compiles
            shutil.rmtree(self.work.folder, ignore_errors=True)
            ended = run(self.work.command, self.place / "log", self.counting)
            if ended.code != 0:
                raise RuntimeError(f"{kind} does not run undisturbed: {ended.output[-2000:]}")
            self.seconds = ended.seconds
        self.calls = len((self.place / "calls").read_text().splitlines())

    def made(self, place: Path) -> works.Work:
        raise NotImplementedError

    def look(self, folder: Path, counts: Counts) -> None:
        raise NotImplementedError

    def finished(self, folder: Path, counts: Counts) -> None:
        raise NotImplementedError

    def counting(self) -> None:
        """In the child: note the calls that write."""
        self.first()
        seam.install(seam.Counted(seam.killed, told=self.place / "calls"))


class _Training(_Victim):
    def made(self, place: Path) -> works.Work:
        self.before = judge.State()
        return works.training(self.kind, place)

    def look(self, folder: Path, counts: Counts) -> None:
        self.before = judge.look(folder, works.EVERY, counts, self.before)

    def finished(self, folder: Path, counts: Counts) -> None:
        judge.finished(folder, works.EVERY, works.STEPS, counts)


class _Sweep(_Victim):
    def __init__(self, kind: str, place: Path) -> None:
        self.first = fork_workers if "workers" in kind else sweep_here
        super().__init__(kind, place)
        self.calls = 0 if "workers" in kind else self.calls  # theirs are not this process's
        self.table = (self.work.folder / "table.csv").read_bytes()

    def made(self, place: Path) -> works.Work:
        self.results: dict[Path, bytes] = {}
        return works.sweep(place)

    def look(self, folder: Path, counts: Counts) -> None:
        judge.whole(folder, counts)
        results = {path: path.read_bytes() for path in folder.glob("trials/*/*/result.json")}
        for path, result in self.results.items():
            if results.get(path) != result:
                counts.add("doubled" if path in results else "lost", f"the trial {path.parent}")
        self.results = results

    def finished(self, folder: Path, counts: Counts) -> None:
        self.look(folder, counts)
        if not (folder / "table.csv").exists():
            counts.add("lost", f"the table of {folder}")
        elif (folder / "table.csv").read_bytes() != self.table:
            counts.add("lost", f"the table of {folder} is not that of an undisturbed sweep")
        parts = [str(path) for path in folder.rglob(f"{judge.PART}*")]
        if parts:
            counts.add("other", f"parts left in {folder}: {parts}")


def _one_victim(
    victim: _Victim,
    rng: np.random.Generator,
    counts: Counts,
    wanted: int,
    show: Callable[[int], None],
) -> None:
    """Kill a command until it has finished."""
    place = victim.place / "killed"
    shutil.rmtree(place, ignore_errors=True)
    work = victim.made(place)
    for _ in range(_MOST_IN_A_ROW):
        inside = bool(victim.calls and rng.random() < _INSIDE)
        ended = _kill(victim, work, rng, inside)
        if ended.signal is None:  # it was done before
            counts.expect_done(ended, victim.kind)
            break
        counts.tries += 1
        counts.met("inside of a write" if inside else "at any moment")
        counts.watch(ended, victim.kind)
        victim.look(work.folder, counts)
        show(counts.tries)
        if counts.tries >= wanted:
            break
    ended = run(work.command, victim.place / "log", victim.first)
    counts.expect_done(ended, f"the resumed {victim.kind}")
    victim.finished(work.folder, counts)
    outside = [path.name for path in place.iterdir() if path.name not in _expected(work)]
    if outside:
        counts.add("files outside", f"{outside} in {place}")


def _expected(work: works.Work) -> set[str]:
    return {work.folder.name, "attacked.toml"}


def _kill(victim: _Victim, work: works.Work, rng: np.random.Generator, inside: bool) -> Ended:
    """Run a command and kill it: at some call that writes, or at some moment."""
    log = victim.place / "log"
    if not inside:
        moment = float(rng.uniform(0, 1.1 * victim.seconds))
        return run(work.command, log, victim.first, kill_after_s=moment)
    at = int(rng.integers(1, victim.calls + 1))

    def first() -> None:
        victim.first()
        seam.install(seam.Counted(seam.killed, at))

    return run(work.command, log, first)
