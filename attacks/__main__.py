"""`python -m attacks [NAME ...]`: run the named attacks, or all; write results/reliability.

An attack that ends is written down at once: named alone, it is made again beside the others. What
other seeds (--seed) give is added to what is there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from attacks import children, disk, inside, kills, result, signals
from attacks.counts import Counts
from attacks.progress import Bounds

ATTACKS = ("environments", "signals", "disk", "kills", "mutations")


def main(args: Sequence[str]) -> int:
    options = _parser().parse_args(args)
    unknown = [name for name in options.names if name not in ATTACKS]
    if unknown:
        sys.exit(f"unknown attack {', '.join(unknown)}: choose from {', '.join(ATTACKS)}")
    console = Console(markup=False)
    bounds = Bounds(time.monotonic() + 60 * options.minutes, console)
    harm = 0
    with tempfile.TemporaryDirectory(prefix="midstride-attacks-") as folder:
        place = Path(folder)
        children.prepare(place / "compiled")
        for name in options.names or ATTACKS:
            started = time.monotonic()
            found = _attack(name, options, place / name, bounds)()
            seconds = time.monotonic() - started
            result.record(options.output, name, options.seed, seconds, found)
            for kind, counts in found.items():
                harm += counts.total
                console.print(f"{kind}: {counts.tries:,} tries, {counts.total} with harm")
                for note in counts.notes:
                    console.print(f"  {note}")
    console.print((options.output / "table.md").read_text())
    return 1 if harm else 0


def _attack(
    name: str, options: argparse.Namespace, place: Path, bounds: Bounds
) -> Callable[[], dict[str, Counts]]:
    seed: int = options.seed
    return {
        "environments": lambda: inside.break_environments(seed, place, bounds),
        "signals": lambda: signals.attack(place, bounds),
        "disk": lambda: disk.attack(options.share, seed, place, bounds),
        "kills": lambda: kills.attack(options.kills, seed, place, bounds),
        "mutations": lambda: inside.mutate(options.mutations, seed, place, bounds),
    }[name]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m attacks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ATTACKS)}")
    parser.add_argument("--minutes", type=float, default=90.0, help="stop after so long (90)")
    parser.add_argument("--kills", type=int, default=1000, help="how many (1,000)")
    parser.add_argument("--mutations", type=int, default=1_000_000, help="how many (1,000,000)")
    parser.add_argument("--share", type=float, default=1.0, help="of the calls that write (all)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--output", type=Path, default=Path("results/reliability"), help="folder")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
