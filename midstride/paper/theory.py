"""Theory: which knowledge is necessary and sufficient, exactly, on the turntable (seconds).

The paper's question 1: the best value against latency, by kind of knowledge. And what hindsight is
worth: values at latencies of whole periods, and of what relabelled data teach. Writes table.csv,
values.png, hindsight.md and config.json.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from midstride.disk.files import write_provenance, write_whole
from midstride.report.curves import save_figure
from midstride.scale.words import saved
from midstride.settings import Settings
from midstride.sweep.disk import write_csv
from midstride.theory.hindsight import Frozen, losses
from midstride.theory.knowledge import (
    KNOWLEDGE,
    NULL_ACTION,
    best_with,
    blocking_value,
    turntable,
)
from midstride.theory.tabular import ConcurrentMDP, solve_blocking

GAMMA, PERIOD_TICKS, SLIPS = 0.9, 3, (0.0, 0.3)
HINDSIGHT_SLIPS, PERIODS, EXPLORED = (0.0, 0.1, 0.3), (1, 2), (0.1, 1.0)
RANDOM_LATENCIES, RANDOM_PROBABILITIES = (1, 3), (0.5, 0.5)
BLOCKING, DELAYED = "blocking", "blocking after the first latency"


@dataclass(frozen=True)
class Options(Settings):
    """Options of the experiment."""

    kind: ClassVar[str] = "option"

    output: str = "results/theory"
    """folder for the table, the plot and the configuration"""


@dataclass(frozen=True)
class Row:
    """One world and latency: the best value by kind of knowledge."""

    slip: float
    latency: str
    values: dict[str, float]


def delayed_blocking_value(mdp: ConcurrentMDP) -> float:
    """Nothing commanded during the first latency, then the blocking optimum: an upper bound."""
    value = solve_blocking(mdp).max(axis=1)
    total = 0.0
    for latency, p in zip(mdp.latencies_ticks, mdp.probabilities, strict=True):
        after = value
        for _ in range(latency):
            after = mdp.world.transitions[NULL_ACTION] @ after
        reward = mdp.stretch_rewards[latency, :, NULL_ACTION]
        total += p * float((reward + mdp.discount(latency) * after).mean())
    return total


def cases() -> list[tuple[float, str, ConcurrentMDP]]:
    """Every row's slip, name of the latency, and problem."""
    latencies: list[tuple[tuple[int, ...], tuple[float, ...]]]
    latencies = [((t,), (1.0,)) for t in range(PERIOD_TICKS + 1)]
    latencies.append((RANDOM_LATENCIES, RANDOM_PROBABILITIES))
    return [
        (
            slip,
            " or ".join(f"{t}/{PERIOD_TICKS}" for t in ticks),
            ConcurrentMDP(turntable(slip), PERIOD_TICKS, GAMMA, ticks, probabilities),
        )
        for slip in SLIPS
        for ticks, probabilities in latencies
    ]


def measure(slip: float, latency: str, mdp: ConcurrentMDP) -> Row:
    values = {BLOCKING: blocking_value(mdp), DELAYED: delayed_blocking_value(mdp)}
    values |= {kind: best_with(mdp, see).value for kind, see in KNOWLEDGE.items()}
    return Row(slip, latency, values)


def make_table(rows: list[Row]) -> Table:
    table = Table(
        title="Turntable: the best value by what the agent knows",
        caption="delayed: blocking control after the first latency",
        box=box.SIMPLE_HEAD,
    )
    headings = ("slip", "t_AS/H", "blocking", "delayed", "nothing")
    for heading in (*headings, "previous\nobs.", "previous\naction", "action\nand t_AS"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = (f"{value:.2f}" for value in row.values.values())
        table.add_row(f"{row.slip:g}", row.latency, *cells, end_section="or" in row.latency)
    return table


def explain(rows: list[Row]) -> str:
    """What the table shows, in its own numbers."""

    def pick(slip: float, latency: str) -> dict[str, float]:
        return next(r.values for r in rows if r.slip == slip and r.latency == latency)

    full = f"{PERIOD_TICKS}/{PERIOD_TICKS}"
    sure, slippery = pick(SLIPS[0], full), pick(SLIPS[1], full)
    mixed = next(r.values for r in rows if r.slip == SLIPS[0] and "or" in r.latency)
    loss = slippery[DELAYED] - slippery["previous action"]
    return (
        "Without knowledge no choice of actions by state alone gets near the blocking optimum once "
        f"latency fills the period ({sure['nothing']:.1f} of {sure[BLOCKING]:.1f}): knowledge is "
        "necessary. With the action in flight the agent computes where the table will be and loses "
        f"nothing after the first latency ({sure['previous action']:.1f}, exactly the value of "
        "blocking control that starts one latency later): where nothing is random, knowledge is "
        "sufficient. A previous observation is a substitute only as far as it gives the action "
        f"away ({sure['previous observation']:.1f}). When the latency varies, the action in flight "
        f"alone is not enough ({mixed['previous action']:.1f} against "
        f"{mixed['previous action and t_AS']:.1f} with t_AS). And where the table slips, chance "
        f"decides during the latency what nobody can know at capture: {loss:.1f} of "
        f"{slippery[DELAYED]:.1f} is lost whatever the agent is told."
    )


def hindsight_rows() -> list[dict[str, str]]:
    """What is lost from the first switch on, and what relabelled data of a frozen world teach."""
    rows = []
    for slip in HINDSIGHT_SLIPS:
        world = Frozen.of(ConcurrentMDP(turntable(slip), PERIOD_TICKS, GAMMA))
        for periods in PERIODS:
            for share in EXPLORED:
                found = losses(world, periods, share)
                rows.append(
                    {
                        "slip": f"{slip:g}",
                        "periods": str(periods),
                        "random": f"{share:.0%}",
                        "frozen": f"{found.frozen:.2f}",
                        "best late": f"{found.best:.2f}",
                        "distilled": f"{found.distilled:.2f}",
                        "relabelled": f"{found.relabelled:.2f}",
                        "believed": f"{found.believed:.2f}",
                    }
                )
    return rows


def show_hindsight(path: Path, console: Console) -> None:
    """The table on the console and as Markdown."""
    rows = hindsight_rows()
    lines = [list(rows[0]), ["---:"] * len(rows[0]), *(list(row.values()) for row in rows)]
    table = Table(title="Hindsight: values from the first switch on", box=box.SIMPLE_HEAD)
    for heading in lines[0]:
        table.add_column(heading, justify="right")
    for cells in lines[2:]:
        table.add_row(*cells)
    console.print(table)
    write_whole(path, "".join(f"| {' | '.join(cells)} |\n" for cells in lines))


def plot(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, len(SLIPS), sharey=True)
    styles: dict[str, dict[str, Any]] = {
        BLOCKING: {"color": "0.5", "ls": "--"},
        DELAYED: {"color": "black", "ls": ":", "lw": 2.5},
        "previous action and t_AS": {"color": "tab:blue", "marker": "o"},
        "previous observation": {"color": "tab:orange", "marker": "s"},
        "nothing": {"color": "tab:red", "marker": "v"},
    }
    labels = {"previous action and t_AS": "knows the action in flight"}
    for axes, slip in zip(np.atleast_1d(panels), SLIPS, strict=True):
        fixed = [row for row in rows if row.slip == slip and "or" not in row.latency]
        x = np.arange(len(fixed)) / PERIOD_TICKS
        for kind, style in styles.items():
            y = [row.values[kind] for row in fixed]
            axes.plot(x, y, label=labels.get(kind, f"knows {kind}" if "marker" in style else kind),
                      **style)  # fmt: skip
        world = "deterministic" if slip == 0 else f"slips {slip:.0%} of the time"
        axes.set(xlabel="latency t_AS / H", title=f"Turntable, {world}")
        axes.grid(alpha=0.3)
    panels[0].set(ylabel="best value", ylim=(0, None))
    panels[0].legend(loc="lower left", fontsize=9)
    return figure


def reproduce(options: Options, console: Console) -> None:
    """Compute the table, print it with what it shows, and save table, plot and provenance."""
    start, output = time.perf_counter(), Path(options.output)
    rows = [
        measure(*case)
        for case in track(cases(), "Trying every policy", console=console, transient=True)
    ]
    console.print(make_table(rows))
    console.print(explain(rows))
    show_hindsight(output / "hindsight.md", console)
    save_figure(output / "values.png", plot(rows))
    lines = ([row.slip, row.latency, *map(repr, row.values.values())] for row in rows)
    write_csv(output / "table.csv", ["slip", "latency", *rows[0].values], lines)
    config = {
        "gamma": GAMMA,
        "period_ticks": PERIOD_TICKS,
        "slips": SLIPS,
        "hindsight": [HINDSIGHT_SLIPS, PERIODS, EXPLORED],
        "random_latencies": RANDOM_LATENCIES,
        "random_probabilities": RANDOM_PROBABILITIES,
    }
    write_provenance(output, config, time.perf_counter() - start)
    console.print(saved(output, "/table.csv, values.png, hindsight.md, config.json"))
