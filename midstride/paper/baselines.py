"""Baselines: the related work side by side, at latencies below, of and beyond a period, and random.

One task at a time: --set task=gym:HalfCheetah-v5. In parts: --arms bpql --latencies 50ms. What was
expected is in the specification, and is held against what was found. Rows that are not trained: the
frozen world's policies, run at the latency; of Gymnasium's tasks, the same adapted, from data alone
and by rounds of imitation. Writes table.md, costs.md, expectations.md, returns.csv, baselines.png,
curves.png of each latency, and config.json. What is there is not made again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from midstride.disk.files import write_whole
from midstride.disk.read import read_json_lines
from midstride.envs.wrapped import WrappedSettings
from midstride.latency import OnScaleOf
from midstride.latency_text import read_latency
from midstride.learn.adapt import adapt
from midstride.learn.adapted import AdaptSettings
from midstride.learn.agents import Training
from midstride.measure.evaluate import evaluate_in
from midstride.measure.play import nothing
from midstride.measure.statistics import half_width
from midstride.paper.regimes import Line, verdicts
from midstride.paper.study import (
    FEW,
    GridOptions,
    Study,
    finish,
    prepare,
    show_table,
    sketch,
    train,
)
from midstride.policies import as_policy, load
from midstride.report.curves import plot_curves, save_figure
from midstride.scale.words import format_return, label, plain
from midstride.settings import Range
from midstride.sweep.disk import write_csv
from midstride.sweep.engine import Grid
from midstride.sweep.spec import Spec, expand, slug

FROZEN, RANDOM = "frozen", "randomised latency"
UNAWARE, KNOWING = "unaware", "knowing: previous action"
TO_GO = "knowing: vector-to-go + t_AS"  # of position-controlled joints
RUN_LATE = "frozen, run at the latency"
ADAPTED, IMITATED = "adapted, data alone", "adapted, rounds of imitation"
CLAIMED = (FROZEN, UNAWARE, KNOWING, RANDOM, "rtac", "rtac_substep", "dcac", "bpql", "predict")
BELOW, ONE, SEVERAL, VARYING = "20ms", "50ms", "150ms", "step:0,20ms,50ms"
SHARE = 0.9  # of another's return that counts as as good

Means = dict[str, dict[str, np.ndarray]]  # row -> latency -> mean return of each training


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    latencies: tuple[str, ...] = (BELOW, ONE, SEVERAL, VARYING)
    """at which latencies to train and to run"""
    claims: Annotated[int, Range(1)] = FEW
    """how many trainings the arms have that claims are made about; --seeds is that of the others"""
    episodes: Annotated[int, Range(1)] = 20
    """how many episodes policies are run in that were trained elsewhere"""
    rounds: Annotated[int, Range(0)] = 3
    """rounds of imitation of the frozen policies; 0: none are adapted"""


@dataclass(frozen=True)
class Found:
    """What came of an experiment."""

    means: Means
    grids: dict[str, list[Grid]]  # by latency


def reproduce(options: Options, console: Console) -> None:
    """Train every arm that fits at each latency, run and adapt the frozen policies, write all."""
    study = prepare("baselines", options)
    grids = {at: list(train_at(study, options, at, console)) for at in options.latencies}
    means = means_of(grids)
    run_elsewhere(means, grids, options.episodes, console)
    if options.rounds:
        add_adapted(means, grids, options, study.folder / "adapted.jsonl", console)
    first = next(
        t for many in grids.values() for g in many for ts in g.trainings.values() for t in ts
    )
    title = f"{first.environment.task}, {first.run.steps:,} steps{sketch(options.claims)}"
    show_table(f"{title}: return by latency", list(rows(means)), study.output / "table.md", console)
    show_table(f"{title}: cost", list(costs(grids)), study.output / "costs.md", console)
    lines = list(expectations(means, floor_of(first, options.episodes)))
    held = list(compared(lines, options.claims))
    if held:
        show_table(f"{title}: as expected?", held, study.output / "expectations.md", console)
    every = ([row, at, i, v] for row, by in means.items() for at, vs in by.items()
             for i, v in enumerate(vs, options.first_seed))  # fmt: skip
    write_csv(study.output / "returns.csv", ["row", "latency", "seed", "mean_return"], every)
    save_figure(study.output / "baselines.png", plot(means, title))
    for at, many in grids.items():
        folders = {arm: fs for grid in many for arm, fs in grid.folders.items() if fs}
        curves = plot_curves(folders, f"{title}, latency {at}")
        save_figure(study.output / f"curves-{slug(at)}.png", curves)
    finish(study, together(grids), console)


# --- Training ------------------------------------------------------------------------------------


def train_at(study: Study, options: Options, latency: str, console: Console) -> Iterator[Grid]:
    """The arms that fit a latency: those that claims are made about, and the others."""
    spec = at_latency(study.spec, latency, console)
    for name, seeds, claimed in (("claims", options.claims, True), ("rest", options.seeds, False)):
        arms = {arm: s for arm, s in spec.arms.items() if (arm in CLAIMED) == claimed}
        if arms:
            folder = study.folder / f"{slug(latency)}-{name}"
            part = replace(study, spec=replace(spec, arms=arms), folder=folder)
            yield train(part, replace(options, seeds=seeds), console)


def at_latency(spec: Spec, latency: str, console: Console) -> Spec:
    """The arms at a latency; those that do not fit it are left out, and it is said why."""
    plain_arm = replace(spec, arms={"": {"latency": latency}})
    envs = expand(plain_arm, 1)[0].training.environment.small().make(1)
    pending = ("pending_actions",) if envs.timing.pending_slots else ()
    arms = dict(spec.arms)
    if envs.layout.controlled and KNOWING in arms:
        arms[TO_GO] = {"knowledge": ("selection_time", "vector_to_go")}
    envs.close()
    fit: dict[str, Mapping[str, Any]] = {}
    if not pending and arms.pop("dcac", None) is not None:
        console.print(plain(f"dcac, {latency}: left out: with one decision in flight it is rtac"))
    for arm, settings in arms.items():
        known = tuple(settings.get("knowledge", ()))
        known += pending if "previous_action" in known else ()
        settings = {"latency": latency, **settings, **({"knowledge": known} if known else {})}
        try:
            expand(replace(spec, arms={arm: settings}), 1)[0].training.check()
        except ValueError as error:
            console.print(plain(f"{arm}, {latency}: left out: {error}"))
        else:
            fit[arm] = settings
    return replace(spec, arms=fit)


def together(grids: Mapping[str, Sequence[Grid]]) -> Grid:
    """All that was trained, each arm named with its latency; the same training counts once."""
    every = Grid([], {}, {}, {})
    for at, many in grids.items():
        for grid in many:
            every.rows.extend(grid.rows)
            for arm, trainings in grid.trainings.items():
                elsewhere = arm in (FROZEN, RANDOM)
                name = arm if elsewhere else f"{arm}, {at}"
                every.trainings[name] = trainings
                every.folders[name], every.results[name] = grid.folders[arm], grid.results[arm]
    return every


# --- Rows ----------------------------------------------------------------------------------------


def means_of(grids: Mapping[str, Sequence[Grid]]) -> Means:
    """Mean returns of each training where it was trained."""
    means: Means = {}
    for at, many in grids.items():
        for grid in many:
            for arm, results in grid.results.items():
                if results:
                    values = np.array([result["mean_return"] for result in results])
                    means.setdefault(arm, {})[at] = values
    return means


def run_elsewhere(
    means: Means, grids: Mapping[str, Sequence[Grid]], episodes: int, console: Console
) -> None:
    """The frozen world's policies, and those of random latencies, run at each latency as it is."""
    work = [
        (arm, at, grid)
        for at, many in grids.items()
        for grid in many
        for arm in (FROZEN, RANDOM)
        if grid.folders.get(arm)
    ]
    for arm, at, grid in track(work, "running policies late", console=console):
        found = []
        for training, folder in zip(grid.trainings[arm], grid.folders[arm], strict=True):
            trained = read_latency(training.environment.latency)
            there = replace(training.environment, latency=OnScaleOf(trained, read_latency(at)))
            episodes_there = evaluate_in(load(folder), there, episodes)
            found.append(np.mean([episode.total for episode in episodes_there]))
        means.setdefault(RUN_LATE if arm == FROZEN else arm, {})[at] = np.array(found)


def add_adapted(
    means: Means,
    grids: Mapping[str, Sequence[Grid]],
    options: Options,
    path: Path,
    console: Console,
) -> None:
    """The frozen policies adapted to each latency; our own tasks have no such row."""
    needed = {"training": str, "latency": str, "rounds": int, "steps": int, "mean_return": float}
    lines = read_json_lines(path, needed, object) if path.exists() else []
    done = {(x["training"], x["latency"], x["rounds"], x["steps"]): x for x in lines}
    for at, many in grids.items():
        for grid in many:
            pairs = zip(grid.trainings.get(FROZEN, ()), grid.folders.get(FROZEN, ()), strict=True)
            for training, folder in pairs:
                if not isinstance(training.environment, WrappedSettings):
                    return
                for row, rounds in ((ADAPTED, 0), (IMITATED, options.rounds)):
                    key = (training.hash, at, rounds, training.run.steps)
                    if key not in done:
                        console.print(plain(f"{row}, {at}, seed {training.run.seed}"))
                        # Noise as always in data; of rounds of imitation the policy alone acts
                        # first, and no round is saved, as in DIDA (docs/baselines.md).
                        how: dict[str, Any] = {"noise": (0.0,), "share": 1.5} if rounds else {}
                        settings = AdaptSettings(rounds=rounds, steps=training.run.steps, **how)
                        made = adapt(load(folder), training.environment, at, None, settings)
                        done[key] = dict(zip(needed, (*key, made.adapted.mean), strict=True))
                        text = "".join(json.dumps(x, allow_nan=False) + "\n" for x in done.values())
                        write_whole(path, text)
                    value = done[key]["mean_return"]
                    before = means.setdefault(row, {}).get(at, np.zeros(0))
                    means[row][at] = np.append(before, value)


def rows(means: Means) -> Iterator[dict[str, str]]:
    """A row for each method: the mean of its trainings at each latency, with its interval."""
    latencies = list(dict.fromkeys(at for by in means.values() for at in by))
    for row, by in means.items():
        counts = sorted({len(values) for values in by.values()})
        cells = {at: _mean(by[at]) if at in by else "-" for at in latencies}
        yield {"method": row, **cells, "trainings": " to ".join(map(str, counts))}


def costs(grids: Mapping[str, Sequence[Grid]]) -> Iterator[dict[str, str]]:
    """What each arm takes: wall time beside others on the same machine, and weights."""
    every = together(grids)
    for arm, results in every.results.items():
        if results:
            yield {
                "arm": arm,
                "steps": f"{results[0]['steps']:,}",
                "seconds (median)": f"{np.median([r['seconds'] for r in results]):.0f}",
                "weights learned": f"{results[0]['parameters']:,}"
                if "parameters" in results[0]
                else "-",
            }


def _mean(values: np.ndarray) -> str:
    spread = f" ± {format_return(half_width(values))}" if len(values) > 1 else ""
    return f"{format_return(float(values.mean()))}{spread}"


def floor_of(training: Training, episodes: int) -> float:
    """What doing nothing gets in the frozen world."""
    still = replace(training.environment, latency="0", knowledge=())
    envs = still.small().make(1)
    idle = as_policy(nothing(envs.single_action_space))
    envs.close()
    return float(np.mean([episode.total for episode in evaluate_in(idle, still, episodes)]))


# --- What was expected ---------------------------------------------------------------------------


def expectations(means: Means, floor: float) -> Iterator[Line]:
    """The lines of the specification, as far as their rows were made; returns above `floor`."""

    def line(first: str, second: str, at: str, share: float = 1.0) -> Iterator[Line]:
        one, other = (means.get(row, {}).get(at) for row in (first, second))
        if one is not None and other is not None:
            amount = "more than" if share == 1 else f"{share:.0%} of"
            text = f"{first}: {amount} {second}, at {at}"
            yield Line(text, one - floor, other - floor, share, paired=False)

    if FROZEN in means and ONE in means.get(RUN_LATE, {}):
        half = 0.5 * (means[FROZEN][ONE] - floor)
        text = f"half of {FROZEN}: more than {RUN_LATE}, at {ONE}"
        yield Line(text, half, means[RUN_LATE][ONE] - floor, 1.0, paired=True)
    for at in (ONE, SEVERAL):
        yield from line(KNOWING, UNAWARE, at)
    yield from line(KNOWING, RANDOM, ONE)
    yield from line("rtac", KNOWING, ONE, SHARE)
    for at in (BELOW, ONE, VARYING):
        yield from line("rtac_substep", KNOWING, at, SHARE)
    yield from line("dcac", KNOWING, SEVERAL, SHARE)
    for at in (BELOW, ONE, VARYING):
        yield from line("bpql", KNOWING, at, SHARE)
    yield from line("bpql", KNOWING, SEVERAL)
    for at in (BELOW, ONE):
        yield from line("predict", KNOWING, at, SHARE)
    yield from line(ADAPTED, KNOWING, ONE, SHARE)


def compared(lines: list[Line], trainings: int) -> Iterator[dict[str, str]]:
    """What came of each expectation; of one to have more than another, by how much."""
    for line, row in zip(lines, verdicts(lines, trainings), strict=True):
        more = float(line.first.mean() - line.second.mean())
        yield row if line.share != 1 else {**row, "found": format_return(more, "+")}


def plot(means: Means, title: str) -> Figure:
    """Return of each method at each latency: a dot for each training, a bar for their mean."""
    latencies = list(dict.fromkeys(at for by in means.values() for at in by))
    figure = Figure(figsize=(3 + 2.6 * len(latencies), 1 + 0.32 * len(means)), layout="constrained")
    panels = figure.subplots(1, len(latencies), sharey=True, sharex=True, squeeze=False)[0]
    names = list(means)
    for axes, at in zip(panels, latencies, strict=True):
        for place, name in enumerate(names):
            if at in means[name]:
                values = means[name][at]
                axes.barh(place, values.mean(), color="0.85", height=0.7)
                axes.plot(values, np.full(len(values), place), "o", ms=3.5, color="#2b7bba")
        axes.set(title=label(at), xlabel="return")
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(names)), [label(name) for name in names])
    panels[0].invert_yaxis()
    figure.suptitle(label(title))
    return figure
