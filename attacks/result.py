"""What came of attacks: results/reliability, one section at a time, written by this file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attacks.counts import KINDS, Counts
from midstride.disk.files import commit, machine, versions, write_whole


def record(
    output: Path, section: str, seed: int, seconds: float, found: Mapping[str, Counts]
) -> None:
    """Put a section in attack.json, beside those made before, and the table of all in table.md.

    Sections of several seeds stand beside each other, and add up in the table.
    """
    path = output / "attack.json"
    sections: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    sections[section if seed == 0 else f"{section}, seed {seed}"] = {
        "command": _command(sys.argv[1:]),
        "seed": seed,
        "seconds": round(seconds, 1),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "counts": {
            name: {
                "tries": counts.tries,
                **counts.troubles,
                "of which": counts.of_which,
                "notes": counts.notes,
            }
            for name, counts in found.items()
        },
    }
    write_whole(path, json.dumps(sections, indent=2) + "\n")
    write_whole(output / "table.md", table(sections))


def _command(args: list[str]) -> str:
    """What was typed, but for where the results were put."""
    if "--output" in args:
        at = args.index("--output")
        args = args[:at] + args[at + 2 :]
    return " ".join(["python -m attacks", *args])


def table(sections: Mapping[str, Any]) -> str:
    """A line for each kind of attack; mutated files, which are of many kinds, in one."""
    lines = [["attack", "tries", *KINDS], ["---", *["---:"] * (1 + len(KINDS))]]
    total = dict.fromkeys(("tries", *KINDS), 0)
    rows: dict[str, dict[str, int]] = {}
    for section in sections.values():
        for name, counts in section["counts"].items():
            row = rows.setdefault(name.partition(": ")[0], dict.fromkeys(total, 0))
            for kind in total:
                row[kind] += counts[kind]
                total[kind] += counts[kind]
    lines += [[name, *_numbers(row)] for name, row in rows.items()]
    lines.append(["all", *_numbers(total)])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _numbers(row: Mapping[str, int]) -> list[str]:
    return [f"{number:,}" for number in row.values()]
