"""Evaluate trained policies, at any latency.

Each policy plays whole episodes in the environment that it was trained for, once for each
latency that is asked for (default: its own). A row has the mean return, or the share of
episodes that succeed where the environment measures that, with a 95 % interval over episodes.
Nothing is written.

examples:
  midstride evaluate runs/aware --latency 0 25ms 50ms
  midstride evaluate runs/aware runs/unaware --episodes 256
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Column, Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax, read
from midstride.scale.words import plain
from midstride.settings import Range, Settings

if TYPE_CHECKING:
    from midstride.envs.learnable import Environment


@dataclass(frozen=True)
class Options(Settings):
    """What to evaluate, and where."""

    run: tuple[str, ...]
    """folders of finished runs"""
    latency: tuple[str, ...] = ()
    """a row for each: 25ms, episode:0,25ms (drawn at each reset), step:0,25ms (at each step),
    trace:latencies.csv (default: as trained)"""
    episodes: Annotated[int, Range(1)] = 64
    """episodes in each row"""
    seed: Annotated[int, Range(0)] = 1_000_000
    """seed of the first environment; the others count up from it"""
    trust: bool = False
    """believe the files of the runs: a task gym:module:ID in them imports the module, which can do
    anything"""


def command(args: Sequence[str], console: Console) -> None:
    usage = "evaluate RUN... [options]"
    syntax = Syntax("evaluate", usage, __doc__ or "", (Group("options", Options),), ("run",))
    run(read(Options, syntax, args), console)


def run(options: Options, console: Console) -> None:
    from midstride.latency import latency_name
    from midstride.policies import load

    runs = []
    for text in options.run:  # reject what does not fit before anything runs
        folder = Path(text)
        environment = environment_of(folder, options.trust)
        rows = {latency: at(environment, latency) for latency in options.latency}
        rows = rows or {latency_name(environment.latency): environment}
        for row in rows.values():
            show.small(row).close()
        runs.append((folder, load(folder), rows))
    for folder, policy, rows in runs:
        console.print(_evaluated(folder, policy, rows, options, console))


def at(environment: Environment, latency: str) -> Environment:
    """The environment at another latency, measured on the scale that the policy knows."""
    from midstride.latency import OnScaleOf, read_latency

    changed: dict[str, Any] = {"latency": latency}
    replace(environment, **changed)  # an error in its own words
    changed["latency"] = OnScaleOf(
        read_latency(environment.to_dict()["latency"]), read_latency(latency)
    )
    return replace(environment, **changed)


def environment_of(folder: Path, trust: bool = False) -> Environment:
    """The environment of a run, from its record."""
    from midstride.tasks.registry import environment_of

    return environment_of(folder, trust)


def _evaluated(
    folder: Path,
    policy: Any,
    rows: dict[str, Environment],
    options: Options,
    console: Console,
) -> Table:
    from midstride.measure.evaluate import evaluate_in

    success = show.success_of(next(iter(rows.values())))
    title = f"{folder}: {options.episodes} episodes"
    table = Table("latency", Column(plain(success or "return")), "95 % interval", "episode")
    table.title = plain(title, "table.title")
    with show.bar(console, "evaluating", len(rows) * options.episodes) as update:
        for k, (latency, environment) in enumerate(rows.items()):

            def on_episode(finished: int, before: int = k * options.episodes) -> None:
                update(before + finished)

            found = evaluate_in(
                policy, environment, options.episodes, options.seed, on_episode=on_episode
            )
            values = [e.measures[success] if success else e.total for e in found]
            seconds = sum(episode.seconds for episode in found) / len(found)
            cells = show.summary(values, is_share=success is not None)
            table.add_row(plain(latency), *cells, f"{seconds:.1f} s")
        update(len(rows) * options.episodes)
    return table
