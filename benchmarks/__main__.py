"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all."""

from __future__ import annotations

import sys

from benchmarks import (
    actors,
    adapt,
    catch,
    concurrent,
    dqn,
    faults,
    grasp,
    margin,
    qtopt,
    ray,
    realtime,
    simulation,
    sweep,
    theory,
)
from benchmarks.figures import show

BENCHMARKS = {
    "simulation": simulation.run,
    "catch": catch.run,
    "concurrent": concurrent.run,
    "theory": theory.run,
    "dqn": dqn.run,
    "actors": actors.run,
    "faults": faults.run,
    "sweep": sweep.run,
    "grasp": grasp.run,
    "qtopt": qtopt.run,
    "margin": margin.run,
    "adapt": adapt.run,
    "realtime": realtime.run,
    "ray": ray.run,
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"unknown benchmark {', '.join(unknown)}: choose from {', '.join(BENCHMARKS)}")
    show([figure for name in names or BENCHMARKS for figure in BENCHMARKS[name]()])


if __name__ == "__main__":
    main(sys.argv[1:])
