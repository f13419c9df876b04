"""Every signal that a process may get, while it trains and while it starts.

Those that ask a process to end (Ctrl-C, Slurm, Docker, a closed terminal) have what was done saved.
The others end it, as they always do. After any of them the same command goes on and finishes.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from attacks import judge, works
from attacks.children import run, sweep_here
from attacks.counts import Counts
from attacks.progress import Bounds

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OTHERS = (
    signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGABRT,
    signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU, signal.SIGCONT, signal.SIGWINCH,
    signal.SIGCHLD, signal.SIGURG, signal.SIGPIPE,
)  # fmt: skip
_LONG = ("--steps", "1_000_000", "--evaluate-every", "40", "--checkpoint-every", "1_000_000")


def attack(place: Path, bounds: Bounds, some: int | None = None) -> dict[str, Counts]:
    """Send each signal to each victim; some: only so many of the signals."""
    shutil.rmtree(place, ignore_errors=True)
    sent = (*ASKING, *OTHERS)[:some]
    found = {}
    for kind in (*works.TRAININGS, "sweep"):
        counts = found[f"signals to {kind}"] = Counts()
        with bounds.section(f"signals to {kind}", len(sent)) as section:
            for number in sent:
                if section.goes_on():
                    _one(kind, number, place, counts)
                    section.show(counts.tries)
    return found


def _one(kind: str, number: signal.Signals, place: Path, counts: Counts) -> None:
    """Send a signal when the first metrics are there, and again to those that go on."""
    where = place / f"{kind}-{number.name}"
    work = works.sweep(where) if kind == "sweep" else works.training(kind, where)
    first = sweep_here if kind == "sweep" else lambda: None
    mark = "sweep.json" if kind == "sweep" else "metrics.jsonl"
    ended = run(work.command, place / "log", first, send=[(work.folder / mark, number)])
    counts.tries += 1
    counts.met(number.name)
    what = f"{kind}, {number.name}"
    counts.watch(ended, what)
    survived = ended.code == 0  # it had finished, or takes no notice
    if number in ASKING and not survived:
        if ended.code != 128 + number:
            how = f"exit code {ended.code}, signal {ended.signal}"
            counts.add("other", f"{what}: {how}: {ended.words}")
        elif kind != "sweep" and not list(work.folder.glob("checkpoint/*.safetensors")):
            counts.add("lost", f"{what}: nothing was saved: {ended.words}")
    judge.whole(work.folder, counts)
    again = run(work.command, place / "log", first)
    counts.expect_done(again, f"{what}, then gone on with")
    if kind != "sweep":
        judge.finished(work.folder, works.EVERY, works.STEPS, counts)
    elif not (work.folder / "report.html").exists():
        counts.add("lost", f"{what}: the sweep did not finish")
    shutil.rmtree(where, ignore_errors=True)
