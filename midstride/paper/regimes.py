"""Regimes: off-policy data of various latencies, relabelled in hindsight, against specialists.

The paper's future work. Specialists at 0, 10, 25 and 50 ms; one policy on the mixture; the same
with every transition relabelled to every latency; a policy from the frozen world's data alone,
relabelled; one that is unaware; and the frozen world's policy, run at each latency. All are
evaluated at latencies that nobody trained at, too. One task and one agent at a time: --set
task=pendulum, --set agent=sac actions=continuous. What was expected is in the specification, and
is held against what was found. A training of DQN takes about two minutes of a core, one of SAC
with a step per update twenty: in all, 8 x 8 of each for each task. Writes table.md,
expectations.md, returns.csv, regimes.png and config.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from rich.console import Console
from rich.progress import track

from midstride.latency import Fixed, OnScaleOf
from midstride.latency_text import read_latency
from midstride.measure.evaluate import evaluate_in
from midstride.measure.statistics import half_width, holm, is_above
from midstride.paper.latencies import Totals, plot, read_totals
from midstride.paper.study import (
    FEW,
    GridOptions,
    finish,
    prepare,
    show_table,
    sketch,
    title_of,
    train,
    write_curves,
    write_returns,
)
from midstride.policies import load
from midstride.report.curves import save_figure
from midstride.report.parts import p_text
from midstride.scale.words import format_return
from midstride.seconds import format_s
from midstride.settings import Range
from midstride.sweep.engine import Grid

LEARNED_S, UNSEEN_S = (0.0, 0.01, 0.025, 0.05), (0.005, 0.035, 0.04)
NEAREST_S = {0.005: (0.0, 0.01), 0.035: (0.025, 0.05), 0.04: (0.025, 0.05)}
SPECIALISTS = {0.0: "frozen", 0.01: "specialist: 10 ms", 0.025: "specialist: 25 ms",
               0.05: "specialist: 50 ms"}  # fmt: skip
MIXED, FROZEN, UNAWARE = "mixture, relabelled", "frozen data, relabelled", "unaware, mixture"
ALPHA = 0.05

Means = Mapping[str, Mapping[float, np.ndarray]]  # arm -> latency in s -> mean of each training


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    episodes: Annotated[int, Range(1)] = 32
    """how many episodes each policy is evaluated in at each latency"""


@dataclass(frozen=True)
class Line:
    """One thing that was expected: that a return is above a share of another's."""

    text: str
    first: np.ndarray  # of each training
    second: np.ndarray
    share: float
    paired: bool

    @property
    def p(self) -> float:
        return is_above(self.first, self.share * self.second, self.paired)


def reproduce(options: Options, console: Console) -> None:
    """Train every arm, evaluate it at each latency, hold it against what was expected."""
    study = prepare("regimes", options)
    if options.show:
        render(study.output, title_of(study.output), console)
        return
    grid = train(study, options, console)
    totals = evaluate_at_each(grid, options.episodes, console)
    write_returns(study.output / "returns.csv", totals, options.first_seed)
    write_curves(grid, study.output / "curves.csv")
    first = next(iter(grid.trainings.values()))[0]
    title = f"{first.environment.task}, {first.agent.agent}, {first.run.steps:,} steps"
    render(study.output, title, console)
    finish(study, grid, console)


def render(output: Path, title: str, console: Console) -> None:
    """table.md, expectations.md and regimes.png from returns.csv alone."""
    totals = read_totals(output / "returns.csv")
    means = {
        arm: {at: np.array([np.mean(one) for one in found]) for at, found in by.items()}
        for arm, by in totals.items()
    }
    seeds = len(next(iter(next(iter(means.values())).values())))
    shown = f"{title}: return at each latency{sketch(seeds)}"
    show_table(shown, list(table_rows(means)), output / "table.md", console)
    found = verdicts(list(expectations(means)), seeds)
    if found:
        show_table(f"{title}: as expected?", found, output / "expectations.md", console)
    save_figure(output / "regimes.png", plot(totals, title))


def evaluate_at_each(grid: Grid, episodes: int, console: Console) -> Totals:
    """Returns of every policy at every latency, measured as it was in training."""
    work = [
        (arm, training, folder, latency_s)
        for arm, group in grid.trainings.items()
        for training, folder in zip(group, grid.folders[arm], strict=True)
        for latency_s in sorted((*LEARNED_S, *UNSEEN_S))
    ]
    totals: Totals = {arm: {} for arm in grid.trainings}
    for arm, training, folder, latency_s in track(work, "evaluating", console=console):
        model = OnScaleOf(read_latency(training.environment.latency), Fixed(latency_s))
        environment = replace(training.environment, latency=model)
        found = evaluate_in(load(folder), environment, episodes)
        totals[arm].setdefault(latency_s, []).append([episode.total for episode in found])
    return totals


def table_rows(means: Means) -> Iterator[dict[str, str]]:
    """A row for each policy: the mean of its trainings at each latency, with its interval."""
    for arm, by_latency in means.items():
        cells = {format_s(at): _mean(values) for at, values in by_latency.items()}
        named = "frozen world's policy, run at the latency" if arm == SPECIALISTS[0.0] else arm
        yield {"policy": named, **cells}


def _mean(values: np.ndarray) -> str:
    spread = f" ± {format_return(half_width(values))}" if len(values) > 1 else ""
    return f"{format_return(float(values.mean()))}{spread}"


def expectations(means: Means) -> Iterator[Line]:
    """The lines of the specification, as far as their arms were trained."""
    for arm, latencies in ((MIXED, LEARNED_S), (FROZEN, LEARNED_S[1:])):
        for at in latencies:
            other = SPECIALISTS[at]
            if arm in means and other in means:
                text = f"{arm}: 90 % of the specialist at {format_s(at)}"
                yield Line(text, means[arm][at], means[other][at], 0.9, paired=False)
    if FROZEN in means and UNAWARE in means:
        late = LEARNED_S[-1]
        text = f"{FROZEN}: 110 % of the unaware one at {format_s(late)}"
        yield Line(text, means[FROZEN][late], means[UNAWARE][late], 1.1, paired=False)
    for arm in (MIXED, FROZEN):
        for at, near in NEAREST_S.items():
            if arm in means:
                beside = np.mean([means[arm][latency] for latency in near], axis=0)
                text = f"{arm}: 90 % of its neighbours at {format_s(at)}, unseen"
                yield Line(text, means[arm][at], beside, 0.9, paired=True)


def verdicts(lines: list[Line], seeds: int) -> list[dict[str, str]]:
    """What came of each expectation; of too few trainings only the share is told."""
    adjusted = holm([line.p for line in lines])
    rows = []
    for line, p in zip(lines, adjusted, strict=True):
        share = float(line.first.mean() / line.second.mean())
        held = "too few" if seeds < FEW else ("yes" if p <= ALPHA else "not shown")
        rows.append(
            {"expected": line.text, "found": f"{share:.0%}", "p (Holm)": p_text(p), "held": held}
        )
    return rows
