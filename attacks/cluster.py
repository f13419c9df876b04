"""`python -m attacks.cluster --kills 200 --minutes 25`: kills on a Ray cluster, at random moments.

QT-Opt, SAC and DQN are trained one after another, each spread over the same cluster of several
nodes, with several collectors, fitters and (QT-Opt) updaters. Meanwhile actors and idle workers are
killed (SIGKILL), whole nodes are killed and others added, and now and then the driver itself is
killed and started again with --resume. Every run must finish; then it is judged: steps as asked
for, no transition twice, no evaluation lost or doubled, every checkpoint that was seen loads, no
process left. What came of it is in results/scale.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console

from attacks import cluster_judge
from attacks.cluster_result import record
from attacks.counts import Counts
from attacks.nodes import Nodes, left_after, open_below
from attacks.progress import Bounds, Section

STEPS, EVERY = 2_400, 400
_COMMON = (
    f"--num-envs 4 --batch-size 8 --steps {STEPS} --evaluate-every {EVERY} --checkpoint-every "
    f"{EVERY // 2} --evaluation-episodes 1 --replay-size 100_000 --no-video --engine ray "
    "--cores 0.2 --collectors 2 --fitters 2"
)
_QTOPT = (
    "--value-range 0 100 --hidden-size 8 --samples 6 --rounds 1 --acting-rounds 1 --updaters 2 "
    "--demonstrations 64 --offline-updates 8"
)
_SMALL = "--hidden 8 --learning-starts 80 --update-every 4"
TRAININGS = {
    "qtopt": f"train gym:InvertedPendulum-v5 qtopt {_COMMON} {_QTOPT}",
    "sac": f"train gym:InvertedPendulum-v5 sac {_COMMON} {_SMALL}",
    "dqn": f"train gym:InvertedPendulum-v5 dqn {_COMMON} {_SMALL}",
}
KINDS = {"actor": 0.7, "worker": 0.15, "node": 0.11, "driver": 0.04}  # shares of kills
_BETWEEN_S = 3.0  # on average
_MOST_OF_A_RUN = 40  # kills, before it is left to finish
# Kills between two checkpoints: more, and on a busy machine nothing would ever start; a training
# gives up when six actors of a role are lost before one did anything.
_MOST_AT_ONCE = 4
_STILL_S = 400.0  # without a checkpoint or a kill: a hang


@dataclass
class Victim:
    """A training on the cluster, and the driver that it is run by."""

    agent: str
    place: Path
    address: str
    driver: subprocess.Popen[bytes] = field(init=False)
    starts: int = 0

    @property
    def folder(self) -> Path:
        return self.place / self.agent

    def start(self) -> None:
        """Begin, or go on with what is there."""
        self.place.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        words = TRAININGS[self.agent].split()
        words += ["--runs", str(self.place), "--name", self.agent, "--resume"]
        with open(self.place / "log", "ab") as log:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "midstride", *words, "--address", self.address],
                stdout=log, stderr=log, cwd=self.place,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return (self.place / "log").read_text(errors="replace")


def main(args: Sequence[str]) -> int:
    options = _parser().parse_args(args)
    repository = str(Path(__file__).resolve().parent.parent)
    # Workers have midstride installed, as on other machines: not in the folder that they run in.
    os.environ["PYTHONPATH"] = os.pathsep.join([repository, os.environ.get("PYTHONPATH", "")])
    bounds = Bounds(time.monotonic() + 60 * options.minutes, Console(markup=False))
    rng, started = np.random.default_rng(options.seed), time.monotonic()
    found = {f"training of {agent}": Counts() for agent in TRAININGS}
    with tempfile.TemporaryDirectory(prefix="midstride-cluster-") as folder:
        nodes = Nodes(Path(folder) / "nodes")
        try:
            with bounds.section("kills on a cluster", options.kills) as section:
                runs = _attack(options.kills, rng, Path(folder), nodes, found, section)
        finally:
            left = nodes.shutdown()
    if left:
        next(iter(found.values())).add("other", f"processes left of the cluster: {left}")
    seconds = time.monotonic() - started
    print(record(options.output, options.seed, options.kills, seconds, runs, nodes.folders, found))
    return 1 if any(counts.total for counts in found.values()) else 0


def _attack(
    kills: int,
    rng: np.random.Generator,
    place: Path,
    nodes: Nodes,
    found: dict[str, Counts],
    section: Section,
) -> dict[str, int]:
    """Runs, one after another, until there were enough kills; how many of each agent."""
    runs = dict.fromkeys(TRAININGS, 0)
    number = 0
    while sum(counts.tries for counts in found.values()) < kills and section.goes_on():
        agent = tuple(TRAININGS)[number % len(TRAININGS)]
        counts = found[f"training of {agent}"]
        others = sum(one.tries for one in found.values()) - counts.tries
        victim = Victim(agent, place / f"run{number}", nodes.address)
        _one_run(victim, rng, nodes, counts, others, kills, section)
        runs[agent] += 1
        number += 1
    return runs


def _one_run(
    victim: Victim,
    rng: np.random.Generator,
    nodes: Nodes,
    counts: Counts,
    before: int,
    wanted: int,
    section: Section,
) -> None:
    """A training that is disturbed until it has ended, and what it came to.

    before: kills of other agents; wanted: of all
    """
    victim.start()
    most = min(wanted - before, counts.tries + _MOST_OF_A_RUN)
    seen = cluster_judge.Seen()
    moved, steps, others, since = time.monotonic(), -1, 0, counts.tries
    due = time.monotonic() + rng.exponential(_BETWEEN_S)
    while victim.driver.poll() is None:
        time.sleep(0.1)
        cluster_judge.watch(victim.folder, seen, counts)
        if seen.steps != steps:
            since = counts.tries
        if seen.steps != steps or counts.tries != others:
            moved, steps, others = time.monotonic(), seen.steps, counts.tries
        if time.monotonic() - moved > _STILL_S:
            counts.add("hangs", f"{victim.agent} after {seen.steps} steps: {victim.said[-1500:]}")
            victim.driver.kill()
            break
        may = counts.tries < min(most, since + _MOST_AT_ONCE) and section.goes_on()
        if may and time.monotonic() >= due:
            _kill(victim, rng, nodes, counts)
            section.show(before + counts.tries)
            due = time.monotonic() + rng.exponential(_BETWEEN_S)
    code = victim.driver.wait()
    if code != 0 and code != -signal.SIGKILL:
        counts.add("lost", f"{victim.agent} ended with {code}: {victim.said[-3000:]}")
    if "Traceback (most recent call last)" in victim.said:
        counts.add("tracebacks", f"{victim.agent}: {victim.said[-3000:]}")
    left = left_after(set(nodes.actors()), 60)
    if left:
        counts.add("other", f"actors left after {victim.agent} had ended: {left}")
    if code == 0:
        cluster_judge.finished(victim.folder, STEPS, EVERY, seen, counts)


def _kill(victim: Victim, rng: np.random.Generator, nodes: Nodes, counts: Counts) -> None:
    """Kill something of some kind, if there is something of it."""
    for process in nodes.actors():
        for path in open_below(process, victim.place):
            counts.add("files outside", f"a worker has a file of the driver open: {path}")
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    if kind == "driver":
        victim.driver.kill()
        victim.driver.wait()
        counts.met("driver")
        counts.tries += 1
        victim.start()
    elif kind == "node":
        nodes.kill(int(rng.integers(len(nodes.others))))
        counts.met("node")
        counts.tries += 1
        time.sleep(float(rng.uniform(0, 3)))  # without it
        nodes.add()
    else:
        there = nodes.actors() if kind == "actor" else nodes.workers()
        if not there:
            return
        process = list(there)[int(rng.integers(len(there)))]
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
            counts.met(there[process] if kind == "actor" else "any worker")
            counts.tries += 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m attacks.cluster", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many (200)")
    parser.add_argument(
        "--minutes", type=float, default=25.0, help="no new ones after so long (25)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--output", type=Path, default=Path("results/scale"), help="folder")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
