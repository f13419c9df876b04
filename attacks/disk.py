"""A disk that is full, or broken, at every single call that writes.

For a training, a sweep, a report and a film: each call fails in turn. The command must end with one
sentence and exit code 2; what is on disk must be whole; and the same command must then finish.
"""

from __future__ import annotations

import errno
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attacks import judge, seam, works
from attacks.children import Ended, Setting, run, sweep_here
from attacks.counts import Counts
from attacks.progress import Bounds
from midstride.disk.files import NOT_WRITTEN

_FILM_LIMITS = (0, 1_000, 4_000, 16_000)  # bytes that fit


@dataclass(frozen=True)
class _Case:
    """A command, what lies there before it, and how its end is judged."""

    name: str
    work: works.Work
    given: Path | None  # copied to the work's folder
    finished: Callable[[Path, Counts], None]
    first: Setting = lambda: None


def attack(share: float, seed: int, place: Path, bounds: Bounds) -> dict[str, Counts]:
    """share: of all calls that write; which, is drawn."""
    shutil.rmtree(place, ignore_errors=True)
    found = {}
    for number, case in enumerate(_cases(place)):
        counts = found[f"full or broken disk: {case.name}"] = Counts()
        rng = np.random.default_rng([seed, number])
        calls = _calls_of(case, place)
        drawn = rng.permutation(len(calls))[: max(1, round(share * len(calls)))]
        with bounds.section(f"disk faults: {case.name}", len(drawn)) as section:
            for k in sorted(int(k) for k in drawn):
                if not section.goes_on():
                    break
                error = seam.ERRORS[k % len(seam.ERRORS)]
                _one(case, k + 1, error, place, counts)
                counts.met(calls[k])
                section.show(counts.tries)
        if case.name == "film":
            _film_on_a_small_disk(case, place, counts)
    return found


def _cases(place: Path) -> list[_Case]:
    def training(folder: Path, counts: Counts) -> None:
        judge.finished(folder, works.EVERY, works.STEPS, counts)

    def holds(*names: str) -> Callable[[Path, Counts], None]:
        def check(folder: Path, counts: Counts) -> None:
            judge.whole(folder, counts)
            for name in names:
                if not (folder / name).exists():
                    counts.add("lost", f"{folder / name}")
            if list(folder.rglob(f"{judge.PART}*")):
                counts.add("other", f"parts left in {folder}")

        return check

    dqn, sweep = (
        works.training("dqn", place / "run"),
        works.sweep(place / "of-sweep", works.ONE_ARM),
    )
    made = works.Work(("report", str(sweep.folder)), sweep.folder)
    run_kept, sweep_kept = place / "kept-run", place / "kept-sweep"
    film = works.Work(
        ("watch", str(run_kept), "--output", str(place / "film"), "--episodes", "1"),
        place / "film",
    )
    report = ("report.html", "sorted.png", "marginals.png", "arms.csv", "pairs.csv")
    return [
        _Case("training", dqn, None, training),
        _Case("sweep", sweep, None, holds("table.csv", *report), sweep_here),
        _Case("report", made, sweep_kept, holds("table.csv", *report)),
        _Case("film", film, None, holds("kept-run.mp4", "kept-run.png")),
    ]


def _calls_of(case: _Case, place: Path) -> list[str]:
    """The calls that the case makes undisturbed; what comes of it is kept for other cases."""

    def first() -> None:
        case.first()
        seam.install(seam.Counted(seam.killed, told=place / "calls"))

    _give(case)
    ended = run(case.work.command, place / "log", first)
    if ended.code != 0:
        raise RuntimeError(f"{case.name} does not run undisturbed: {ended.words}")
    kept = {"training": "kept-run", "sweep": "kept-sweep"}.get(case.name)
    if kept is not None:
        shutil.copytree(case.work.folder, place / kept)
    return (place / "calls").read_text().splitlines()


def _give(case: _Case) -> None:
    shutil.rmtree(case.work.folder, ignore_errors=True)
    if case.given is not None:
        shutil.copytree(case.given, case.work.folder)


def _one(case: _Case, at: int, error: int, place: Path, counts: Counts) -> None:
    """Let one call fail, or all from it on: a disk that is full stays full."""

    def first() -> None:
        case.first()
        lasting = error in (errno.ENOSPC, errno.EROFS)
        seam.install(seam.Counted(seam.failing(error), at, lasting))

    what = f"{case.name}, call {at}, {errno.errorcode[error]}"
    _judged(case, run(*_before(case, place), first), place, counts, what)


def _before(case: _Case, place: Path) -> tuple[tuple[str, ...], Path]:
    _give(case)
    return case.work.command, place / "log"


def _judged(case: _Case, ended: Ended, place: Path, counts: Counts, what: str) -> None:
    counts.tries += 1
    counts.watch(ended, what)
    if not ended.is_a_sentence or NOT_WRITTEN not in ended.said:
        counts.add("other", f"{what}: exit code {ended.code}, {ended.words}")
    if case.work.folder.exists():
        judge.whole(case.work.folder, counts)
    again = run(case.work.command, place / "log", case.first)
    counts.expect_done(again, f"{what}, then gone on with")
    case.finished(case.work.folder, counts)


def _film_on_a_small_disk(case: _Case, place: Path, counts: Counts) -> None:
    """Films are written by ffmpeg, which is another process: no file may be longer than that."""
    for limit in _FILM_LIMITS:

        def first(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

        log = place / "log"
        _give(case)
        ended = run(case.work.command, log, first)
        counts.tries += 1
        counts.met("ffmpeg")
        judge.whole(case.work.folder, counts)
        if ended.code == 0 and not any(case.work.folder.glob("*.mp4")):
            counts.add("lost", f"a film that does not fit into {limit} bytes: nobody says so")
        counts.watch(ended, f"film, {limit} bytes")
        again = run(case.work.command, log, case.first)
        counts.expect_done(again, f"film, {limit} bytes, then gone on with")
        case.finished(case.work.folder, counts)
