"""Dynamic: catching a ball, where a robot that rests while it thinks cannot be in time.

Trains DQN on Catch in the frozen world (an oracle: no ball waits), in hold, and concurrently,
unaware and knowing, at latencies of 50, 100 and 200 ms; and deciding twice as often. Some rows are
not trained: the frozen world's policies, run late as they are, while moving and in hold. What was
expected is in the specification, and is held against what was found. A training takes about half a
minute of a core, at the shorter period twice that: 8 x 19 in all. Writes table.md (by latency),
details.md, expectations.md, episodes.csv, catch.png, curves.csv, curves.png and config.json.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from midstride.measure.evaluate import EVALUATION_SEED
from midstride.paper.judged import judged
from midstride.paper.regimes import Line, verdicts
from midstride.paper.study import (
    GridOptions,
    finish,
    percent,
    prepare,
    read_curves,
    read_groups,
    show_table,
    sketch,
    train,
    write_curves,
)
from midstride.report.curves import save_figure
from midstride.settings import Range
from midstride.sweep.disk import write_csv
from midstride.sweep.engine import Grid

LATENCIES = ("50 ms", "100 ms", "200 ms")
FROZEN, HOLD, UNAWARE = "frozen world (oracle)", "hold", "unaware"
KNOWING, TO_GO = "knowing what is in flight", "vector-to-go"
LONGER_HOLD = "hold executing for 150 ms"
OFTEN = "every 50 ms: "
RUN_LATE = "frozen world's policy, run late"
RUN_HOLDING = "frozen world's policy, run in hold"
ROWS = (  # of the table, at each latency; the name of an arm is a row's and its latency
    FROZEN, RUN_LATE, RUN_HOLDING, HOLD, LONGER_HOLD, UNAWARE, KNOWING, TO_GO,
    OFTEN + FROZEN, OFTEN + RUN_LATE, OFTEN + UNAWARE, OFTEN + KNOWING,
)  # fmt: skip
DRAWN_FOR = "100 ms"  # throws are
KEPT, CLEARLY_BELOW = 0.9, 0.75  # decided before the data: the specification

MEASURES = ("beyond_hold", "success", "reach_error_m", "jerk")  # that are kept of a throw
_SEEDS_APART = 100_000  # of the throws of one training and the next

Found = Mapping[str, Sequence[Sequence[Mapping[str, float]]]]  # arm -> training -> throws
Expected = Callable[[Found, int], Iterator[dict[str, str]]]


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    seeds: Annotated[int, Range(1)] = 8
    """how many trainings each arm has; a comparison that matters has at least 8"""
    first_seed: Annotated[int, Range(0)] = 200
    """seed of the first training of each arm; the others count up from it"""


def reproduce(options: Options, console: Console) -> None:
    """Train every arm, run the frozen world's policies late, hold all against what was expected."""
    carry_out("dynamic", expected, options, console)


def carry_out(name: str, expects: Expected, options: Options, console: Console) -> None:
    """The experiment of a specification whose arms are named as those here."""
    study = prepare(name, options)
    if options.show:
        render(study.output, expects, console)
        return
    grid = train(study, options, console)
    every = (
        [arm, seed, i, *(episode[name] for name in MEASURES)]
        for arm, group in episodes_of(grid, console).items()
        for seed, each in enumerate(group, options.first_seed)
        for i, episode in enumerate(each)
    )
    write_csv(study.output / "episodes.csv", ["kind", "seed", "episode", *MEASURES], every)
    write_curves(grid, study.output / "curves.csv", "success")
    render(study.output, expects, console)
    finish(study, grid, console)


def render(output: Path, expects: Expected, console: Console) -> None:
    """The tables and the pictures from episodes.csv and curves.csv alone."""
    found = read_found(output / "episodes.csv")
    seeds = min(map(len, found.values()))
    title = f"throws caught, by latency{sketch(seeds)}"
    show_table(title, list(table_rows(found)), output / "table.md", console)
    details = list(detail_rows(found))
    show_table(f"throws caught{sketch(seeds)}", details, output / "details.md", console)
    held = list(expects(found, seeds))
    if held:
        show_table("as expected?", held, output / "expectations.md", console)
    save_figure(output / "catch.png", plot(found))
    curves = read_curves(output / "curves.csv", "success")
    save_figure(output / "curves.png", plot_curves(curves, seeds))


def read_found(path: Path) -> dict[str, list[list[dict[str, float]]]]:
    """What was written of every throw."""
    columns = {name: read_groups(path, name) for name in MEASURES}
    return {
        arm: [
            [dict(zip(MEASURES, each, strict=True)) for each in zip(*training, strict=True)]
            for training in zip(*(columns[name][arm,] for name in MEASURES), strict=True)
        ]
        for (arm,) in columns[MEASURES[0]]
    }


def at(row: str, latency: str) -> str:
    """What the arm of a row of the table is called; an oracle has no latency."""
    return row if row.endswith(FROZEN) else f"{row}, {latency}"


def _cell(found: Container[str], row: str, latency: str) -> str | None:
    """The arm that a row has at a latency, if there is one; of deciding often at 100 ms only."""
    apart = row.startswith(OFTEN) and latency != DRAWN_FOR
    return at(row, latency) if at(row, latency) in found and not apart else None


def run_late(arm: str, latencies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of the frozen world's policies: what they are called run late, and what is other then."""
    if arm == OFTEN + FROZEN:
        return {at(OFTEN + RUN_LATE, DRAWN_FOR): {"latency": DRAWN_FOR.replace(" ", "")}}
    if arm != FROZEN:
        return {}
    late = {latency: {"latency": latency.replace(" ", "")} for latency in latencies}
    return {
        **{at(RUN_LATE, latency): changes for latency, changes in late.items()},
        **{at(RUN_HOLDING, one): {**changes, "mode": "hold"} for one, changes in late.items()},
    }


def episodes_of(grid: Grid, console: Console) -> Found:
    """What every policy is judged by, and what the frozen world's do where nothing waits.

    A training's throws are its own, and those of the trainings of other arms with its seed.
    """
    trained_at = _latencies(grid.trainings)
    work = [
        (name, changes, training, folder)
        for arm, trainings in grid.trainings.items()
        for name, changes in {arm: {}, **run_late(arm, trained_at or LATENCIES)}.items()
        for training, folder in zip(trainings, grid.folders[arm], strict=True)
    ]
    found: dict[str, list[list[dict[str, float]]]] = {}
    for name, changes, training, folder in track(work, "throwing", console=console):
        seed = EVALUATION_SEED + _SEEDS_APART * training.run.seed
        measures = judged(training, folder, name, seed, **changes)["measures"]
        rows = zip(*(measures[one] for one in MEASURES), strict=True)
        found.setdefault(name, []).append([dict(zip(MEASURES, row, strict=True)) for row in rows])
    return found


def share(found: Found, arm: str, beyond_hold: bool | None = None) -> np.ndarray:
    """Of the throws of each training, all, beyond hold's reach, or within it: those caught.

    Of a training without such throws nothing.
    """
    shares = []
    for each in found[arm]:
        caught = [
            episode["success"]
            for episode in each
            if beyond_hold is None or bool(episode["beyond_hold"]) == beyond_hold
        ]
        shares += [np.mean(caught)] if caught else []
    return np.array(shares)


def table_rows(found: Found) -> Iterator[dict[str, str]]:
    """A row for each way to think, a column for each latency: means with their 95 % intervals."""
    panels = _panels(found)
    for row in _rows(found):
        cells = {}
        for title, (latency, beyond_hold) in panels.items():
            arm = _cell(found, row, latency)
            cells[title] = "-" if arm is None else percent(share(found, arm, beyond_hold))
        yield {"policy": row, **cells}


def _latencies(arms: Iterable[str]) -> list[str]:
    """At which some of the arms were trained."""
    arms = list(arms)
    return [one for one in LATENCIES if any(arm.endswith(f", {one}") for arm in arms)]


def _panels(found: Found) -> dict[str, tuple[str, bool | None]]:
    """Columns of the table and parts of the picture: latency, and which throws."""
    latencies = _latencies(found)
    panels: dict[str, tuple[str, bool | None]] = {one: (one, None) for one in latencies}
    if DRAWN_FOR in latencies:
        panels[f"{DRAWN_FOR}, beyond hold's reach"] = DRAWN_FOR, True
    return panels


def _rows(found: Found) -> list[str]:
    latencies = _latencies(found)
    return [row for row in ROWS if any(_cell(found, row, one) for one in latencies)]


def detail_rows(found: Found) -> Iterator[dict[str, str]]:
    """A row for each arm. Beyond hold's reach is at its latency, and of an oracle at 100 ms."""
    for arm, group in found.items():
        missed = np.array([np.mean([e["reach_error_m"] for e in each]) for each in group])
        jerk = np.array([np.mean([e["jerk"] for e in each]) for each in group])
        beyond = np.mean([[e["beyond_hold"] for e in each] for each in group])
        parts = (share(found, arm, is_beyond) for is_beyond in (True, False))
        far, near = (percent(part) if len(part) else "-" for part in parts)
        yield {
            "policy": arm,
            "all throws": percent(share(found, arm)),
            "beyond hold's reach": far,
            "of all": f"{beyond:.0%}",
            "within it": near,
            "missed by, mean": f"{100 * missed.mean():.1f} cm",
            "jerk": f"{jerk.mean():,.0f} m/s^3",
        }


def expected(found: Found, seeds: int) -> Iterator[dict[str, str]]:
    """The lines of the specification, as far as their arms were trained."""
    for arm in (at(row, latency) for latency in LATENCIES[1:] for row in (HOLD, LONGER_HOLD)):
        if arm in found:
            most = float(share(found, arm, beyond_hold=True).max())
            yield {
                "expected": f"{arm}: none beyond its reach, in every training",
                "found": f"{most:.0%} at most",
                "p (Holm)": "-",
                "held": "yes" if most == 0 else "no",
            }
    yield from verdicts(list(_lines(found)), seeds)


def _lines(found: Found) -> Iterator[Line]:
    for row in (KNOWING, TO_GO):
        for latency in LATENCIES:
            yield from keeps(found, at(row, latency), FROZEN)
        yield from keeps(found, at(row, DRAWN_FOR), FROZEN, beyond_hold=True)
    for latency in LATENCIES[1:]:
        yield from is_clearly_above(found, at(KNOWING, latency), at(UNAWARE, latency))
    for latency in LATENCIES[1:]:
        yield from is_clearly_above(found, FROZEN, at(RUN_LATE, latency), paired=True)
    yield from keeps(found, at(LONGER_HOLD, LATENCIES[0]), FROZEN)
    knowing, unaware = (at(OFTEN + row, DRAWN_FOR) for row in (KNOWING, UNAWARE))
    yield from keeps(found, knowing, OFTEN + FROZEN)
    yield from is_clearly_above(found, knowing, unaware)


def keeps(found: Found, arm: str, oracle: str, beyond_hold: bool | None = None) -> Iterator[Line]:
    """That an arm catches 90 % of what an oracle does."""
    if arm in found and oracle in found:
        of = " of throws beyond hold's reach" if beyond_hold else ""
        text = f"{arm}: {KEPT:.0%} of {oracle}{of}"
        first, second = (share(found, one, beyond_hold) for one in (arm, oracle))
        yield Line(text, first, second, KEPT, paired=False)


def is_clearly_above(
    found: Found, arm: str, other: str, paired: bool = False, beyond_hold: bool | None = None
) -> Iterator[Line]:
    """That the other catches less than 75 % of what an arm does."""
    if arm in found and other in found:
        of = " of throws beyond hold's reach" if beyond_hold else ""
        text = f"{arm}: more than 4/3 of {other}{of}"
        first, second = (share(found, one, beyond_hold) for one in (arm, other))
        yield Line(text, first, second, 1 / CLEARLY_BELOW, paired)


def plot(found: Found) -> Figure:
    """Throws caught, a panel for each column of the table: means, and dots for trainings."""
    panels, rows = _panels(found), _rows(found)
    figure = Figure(figsize=(4 + 1.9 * len(panels), 0.33 * len(rows) + 1.5), layout="constrained")
    all_axes = np.atleast_1d(figure.subplots(1, max(1, len(panels)), sharey=True))
    for axes, (title, (latency, beyond_hold)) in zip(all_axes, panels.items(), strict=False):
        for k, row in enumerate(rows):
            arm = _cell(found, row, latency)
            if arm is not None:
                values = 100 * share(found, arm, beyond_hold)
                axes.barh(k, values.mean(), 0.6, color=_colour(row), alpha=0.6)
                axes.plot(values, np.full(len(values), k), ".", color="0.2", ms=4)
        axes.set(xlim=(0, 101), xlabel="throws caught, %")
        axes.set_title(title.replace(", ", ",\n"), fontsize="medium")
        axes.grid(axis="x", alpha=0.3)
    all_axes[0].set_yticks(range(len(rows)), rows)
    all_axes[0].invert_yaxis()
    return figure


def _colour(row: str) -> str:
    if row.endswith(FROZEN):
        return "0.6"
    return "tab:blue" if row.endswith((KNOWING, TO_GO)) else "tab:orange"


def plot_curves(curves: Mapping[str, Sequence[Mapping[int, float]]], seeds: int) -> Figure:
    """Learning at each latency, and deciding often: means of trainings, from least to most."""
    rows = [row for row in ROWS if not row.startswith(OFTEN)]
    panels = [("", one) for one in _latencies(arm for arm in curves if not arm.startswith(OFTEN))]
    panels += [(OFTEN, DRAWN_FOR)] if any(arm.startswith(OFTEN) for arm in curves) else []
    figure = Figure(figsize=(3.1 * max(1, len(panels)) + 0.4, 4.2), layout="constrained")
    all_axes = np.atleast_1d(figure.subplots(1, max(1, len(panels)), sharey=True))
    drawn = {}
    for axes, (often, latency) in zip(all_axes, panels, strict=False):
        for k, row in enumerate(rows):
            found = curves.get(at(often + row, latency), ())
            steps = sorted(set.intersection(*map(set, found))) if found else []
            if steps:
                values = np.array([[curve[one] for one in steps] for curve in found])
                (line,) = axes.plot(steps, values.mean(axis=0), marker=".", color=f"C{k}")
                low, high = values.min(axis=0), values.max(axis=0)
                axes.fill_between(steps, low, high, color=f"C{k}", alpha=0.15, lw=0)
                drawn[row] = line
        axes.set_title(f"{often}{latency}", fontsize="medium")
        axes.set(xlabel="steps", ylim=(0, 1.03))
        axes.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1000:.0f}k")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel("throws caught by the greedy policy")
    figure.suptitle(f"Learning to catch{sketch(seeds) or f', {seeds} trainings of each'}")
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=3)
    return figure
