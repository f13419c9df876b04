"""What came of kills on a cluster: results/scale/kills.json and kills.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from attacks.counts import Counts
from midstride.disk.files import commit, machine, versions, write_whole

_JUDGED = {
    "lost": "lost", "doubled": "doubled", "tracebacks": "tracebacks", "hangs": "hangs",
    "files outside": "driver's files open elsewhere", "other": "other",
}  # fmt: skip
_WHAT = (
    "Kills on `ray.cluster_utils.Cluster` (`python -m attacks.cluster`): {kills} in {runs} runs "
    "and {minutes:.0f} minutes, seed {seed}, {nodes} nodes that came and went. Everything but runs "
    "and kills must be 0. Simulated: nodes are processes of one machine, in working folders of "
    "their own ([what that means](../../docs/scale.md#kills)).\n\n"
)


def record(
    output: Path,
    seed: int,
    asked: int,
    seconds: float,
    runs: Mapping[str, int],
    nodes: int,
    found: Mapping[str, Counts],
) -> str:
    """Write both files; the table."""
    kills = sum(counts.tries for counts in found.values())
    content = {
        "command": f"python -m attacks.cluster --kills {asked} --seed {seed}",
        "seed": seed,
        "seconds": round(seconds, 1),
        "commit": commit(),
        "versions": {**versions(), "ray": version("ray")},
        "machine": machine(),
        "kills": kills,
        "nodes": nodes,
        "runs": dict(runs),
        "counts": {
            name: {
                "kills": counts.tries,
                **counts.troubles,
                "of which": counts.of_which,
                "notes": counts.notes,
            }
            for name, counts in found.items()
        },
    }
    said = _WHAT.format(
        kills=kills, runs=sum(runs.values()), minutes=seconds / 60, seed=seed, nodes=nodes
    )
    text = said + table(runs, found)
    write_whole(output / "kills.json", json.dumps(content, indent=2) + "\n")
    write_whole(output / "kills.md", text)
    return text


def table(runs: Mapping[str, int], found: Mapping[str, Counts]) -> str:
    """A line for each agent, and what was killed."""
    lines = [["", "runs", "kills", *_JUDGED.values()], ["---", *["---:"] * (2 + len(_JUDGED))]]
    for count, (name, counts) in zip(runs.values(), found.items(), strict=True):
        troubles = (counts.troubles[kind] for kind in _JUDGED)
        lines.append([name, *map(str, (count, counts.tries, *troubles))])
    met: dict[str, int] = {}
    for counts in found.values():
        for what, count in counts.of_which.items():
            met[what] = met.get(what, 0) + count
    said = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    rest = "".join(f"| {what} | {count:,} |\n" for what, count in sorted(met.items()))
    return f"{said}\n| killed, and what was seen | |\n|---|---:|\n{rest}"
