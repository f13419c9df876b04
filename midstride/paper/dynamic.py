"""Dynamic: catching a ball, where a robot that rests while it thinks cannot be in time.

Trains DQN on Catch in the frozen world (an oracle: no ball waits), in hold, and concurrently at a
latency of 100 ms, unaware and knowing, at a period of 100 ms and of 50 ms. Two rows are not
trained: the frozen world's policies, run at the latency as they are, while moving and in hold. What
was expected is in the specification, and is held against what was found. A training takes about
half a minute of a core, at the shorter period twice that: 8 x 7 in all. Writes table.md,
expectations.md, episodes.csv, catch.png, curves.png and config.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from midstride.learn.trainer import final_episodes
from midstride.measure.evaluate import Episode
from midstride.measure.statistics import half_width
from midstride.paper.regimes import Line, verdicts
from midstride.paper.study import GridOptions, finish, prepare, show_table, sketch, train
from midstride.policies import load
from midstride.report.curves import plot_curves, save_figure
from midstride.settings import Range
from midstride.sweep.disk import write_csv
from midstride.sweep.engine import Grid

FROZEN, HOLD, UNAWARE = "frozen world (oracle)", "hold", "unaware"
PREVIOUS, TO_GO = "previous action + t_AS", "vector-to-go"
FAST_UNAWARE = "twice the period: unaware"
FAST_KNOWING = "twice the period: knowing all that is in flight"
RUN_AT = "frozen world's policy, run at 100 ms"
RUN_HOLDING = "frozen world's policy, run in hold"
LATE: dict[str, dict[str, Any]] = {
    RUN_AT: {"latency": "100ms"},
    RUN_HOLDING: {"latency": "100ms", "mode": "hold"},
}
KEPT, FAST_KEPT, CLEARLY_BELOW = 0.9, 0.8, 0.75  # decided before the data: the specification

Found = Mapping[str, Sequence[Sequence[Episode]]]  # arm -> training -> episodes


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    seeds: Annotated[int, Range(1)] = 8
    """how many trainings each arm has; a comparison that matters has at least 8"""
    first_seed: Annotated[int, Range(0)] = 100
    """seed of the first training of each arm; the others count up from it"""


def reproduce(options: Options, console: Console) -> None:
    """Train every arm, run the frozen world's policies late, hold all against what was expected."""
    study = prepare("dynamic", options)
    grid = train(study, options, console)
    found = episodes_of(grid, console)
    title = f"catch: throws caught{sketch(options.seeds)}"
    show_table(title, list(table_rows(found)), study.output / "table.md", console)
    held = list(expected(found, options.seeds))
    if held:
        show_table("catch: as expected?", held, study.output / "expectations.md", console)
    heading = ["kind", "seed", "episode", "beyond_hold", "success", "reach_error_m", "jerk"]
    every = (
        [arm, seed, i, *(episode.measures[name] for name in heading[3:])]
        for arm, group in found.items()
        for seed, each in enumerate(group, options.first_seed)
        for i, episode in enumerate(each)
    )
    write_csv(study.output / "episodes.csv", heading, every)
    save_figure(study.output / "catch.png", plot(found))
    curves = plot_curves(grid.folders, f"Catch, {options.seeds} trainings of each", "success")
    save_figure(study.output / "curves.png", curves)
    finish(study, grid, console)


def episodes_of(grid: Grid, console: Console) -> dict[str, list[list[Episode]]]:
    """What every policy is judged by, and what the frozen world's do where nothing waits."""
    work = [
        (arm, training, folder)
        for arm, trainings in grid.trainings.items()
        for training, folder in zip(trainings, grid.folders[arm], strict=True)
    ]
    found: dict[str, list[list[Episode]]] = {}
    for arm, training, folder in track(work, "throwing", console=console):
        policy, environment = load(folder), training.environment
        runs = {arm: environment}
        if arm == FROZEN:
            runs |= {name: replace(environment, **late) for name, late in LATE.items()}
        for name, where in runs.items():
            found.setdefault(name, []).append(final_episodes(policy, where, training.run))
    return found


def share(found: Found, arm: str, beyond_hold: bool | None = True) -> np.ndarray:
    """Of the throws of each training, beyond hold's reach, within it, or all: those caught."""
    return np.array(
        [
            np.mean(
                [
                    episode.measures["success"]
                    for episode in each
                    if beyond_hold is None or bool(episode.measures["beyond_hold"]) == beyond_hold
                ]
            )
            for each in found[arm]
        ]
    )


def table_rows(found: Found) -> Iterator[dict[str, str]]:
    """A row for each arm: means of its trainings, with their 95 % intervals."""
    for arm, group in found.items():
        missed = np.array([np.mean([e.measures["reach_error_m"] for e in each]) for each in group])
        jerk = np.array([np.mean([e.measures["jerk"] for e in each]) for each in group])
        yield {
            "policy": arm,
            "beyond hold's reach": _percent(share(found, arm)),
            "within it": _percent(share(found, arm, beyond_hold=False)),
            "all throws": _percent(share(found, arm, beyond_hold=None)),
            "missed by, mean": f"{100 * missed.mean():.1f} cm",
            "jerk": f"{jerk.mean():,.0f} m/s^3",
        }


def _percent(values: np.ndarray) -> str:
    spread = f" ± {100 * half_width(values):.1f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.1f}{spread} %"


def expected(found: Found, seeds: int) -> Iterator[dict[str, str]]:
    """The lines of the specification, as far as their arms were trained."""
    if HOLD in found:
        most = float(share(found, HOLD).max())
        yield {
            "expected": f"{HOLD}: none, in every training",
            "found": f"{most:.0%} at most",
            "p (Holm)": "-",
            "held": "yes" if most == 0 else "no",
        }
    yield from verdicts(list(_lines(found)), seeds)


def _lines(found: Found) -> Iterator[Line]:
    for arm, kept in ((PREVIOUS, KEPT), (TO_GO, KEPT), (FAST_KNOWING, FAST_KEPT)):
        if arm in found and FROZEN in found:
            text = f"{arm}: {kept:.0%} of the frozen world's (oracle)"
            yield Line(text, share(found, arm), share(found, FROZEN), kept, paired=False)
    for arm, other in ((PREVIOUS, UNAWARE), (FAST_KNOWING, FAST_UNAWARE)):
        if arm in found and other in found:
            text = f"{arm}: more than 4/3 of {other}"
            yield Line(text, share(found, arm), share(found, other), 1 / CLEARLY_BELOW, False)
    if FROZEN in found:
        text = f"{FROZEN}: more than 4/3 of the same policies run at 100 ms"
        yield Line(text, share(found, FROZEN), share(found, RUN_AT), 1 / CLEARLY_BELOW, True)


def plot(found: Found) -> Figure:
    """Throws caught: bars are means over trainings, dots the trainings."""
    figure = Figure(figsize=(8.5, 0.55 * len(found) + 1.4), layout="constrained")
    axes = figure.subplots()
    for k, arm in enumerate(found):
        for is_beyond, offset, colour in ((True, -0.2, "tab:orange"), (False, 0.2, "tab:blue")):
            values = 100 * share(found, arm, is_beyond)
            axes.barh(k + offset, values.mean(), 0.36, color=colour, alpha=0.55)
            axes.plot(values, np.full(len(values), k + offset), ".", color="0.2", ms=4)
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set(xlim=(0, 101), xlabel="throws caught, %")
    axes.barh([0], [0], color="tab:orange", alpha=0.55, label="beyond the reach of hold")
    axes.barh([0], [0], color="tab:blue", alpha=0.55, label="within it")
    axes.legend(loc="upper center", bbox_to_anchor=(0.35, 1.16), ncols=2, frameon=False)
    axes.grid(axis="x", alpha=0.3)
    return figure
