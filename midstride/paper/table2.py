"""Table 2: QT-Opt grasps on a robot that does not wait, blocking and concurrent (hours).

Policies are trained in simulation with latencies that were measured on the robot, and run on a body
that differs from the one that they were trained on (`realtime/strange.py`), with household objects.
One row is not trained: the blocking policies, run concurrently. On the wall clock the robot is a
process of its own, and a grasp takes the time it takes; on the virtual clock the same robot lives
through the same draws of latency, and everything can be repeated to the last bit. Every grasp is
kept: the same command, interrupted, goes on with the next. Writes, in a folder for each clock:
table.md, comparison.md, expectations.md, simulated.md (the trainings' own evaluation), grasps.csv,
body.json, config.json and films of each row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from midstride.disk.files import write_whole
from midstride.disk.read import damage_of, read_csv
from midstride.disk.runs import read_result
from midstride.measure.statistics import (
    ALPHA,
    difference_of,
    differs,
    half_width,
    holm,
    share_interval,
)
from midstride.paper.robot_grasps import ClockName, Job, grasps_of_all
from midstride.paper.study import (
    GridOptions,
    Study,
    finish,
    prepare,
    read_groups,
    show_table,
    sketch,
    train,
)
from midstride.realtime.grasps import Grasp
from midstride.realtime.runtime import Mode
from midstride.realtime.strange import Strange
from midstride.settings import Range
from midstride.sweep.disk import MOST_ROWS, original, write_csv
from midstride.sweep.engine import Grid
from midstride.sweep.spec import slug

BLOCKING, CONCURRENT = "blocking", "concurrent, VTG"
RUN_CONCURRENTLY = "blocking, run concurrently"
# Row -> the arm whose policies are run, and how.
ROWS: dict[str, tuple[str, Mode]] = {
    BLOCKING: (BLOCKING, "rest"),
    RUN_CONCURRENTLY: (BLOCKING, "concurrent"),
    CONCURRENT: (CONCURRENT, "concurrent"),
}
# Grasp success and policy duration, as printed; the deviation is over grasps.
PAPER = {BLOCKING: ("81.43 %", "22.60 ± 12.99"), CONCURRENT: ("68.60 %", "11.52 ± 7.272")}
CLOCKS = {
    "wall": "on the wall clock, the robot in a process of its own",
    "virtual": "on the virtual clock, latencies replayed from the measured trace",
}
GRASPS, SIMULATED = "grasps.csv", "simulated.csv"
_JUDGED = ("success", "policy_duration_s")  # of the trainings' own evaluation
_FILMED = 3  # grasps of the first training of each row
SHORTER, SHORTER_SUCCESSES = 0.49, 0.37  # expected of concurrent, against blocking
POINTS = 0.02  # within which success, and the share cut off, are expected to stay

Group = Sequence[Sequence[Grasp]]  # training -> grasps
Rows = Mapping[str, Group]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    clock: ClockName = "wall"
    """wall: the robot is a process that does not wait, and a grasp takes seconds; virtual: the same
    robot and the same draws of latency, as fast as it can be computed, to the last bit"""
    grasps: Annotated[int, Range(1, 10_000)] = 100
    """how many grasps each training has, the same for all"""
    robots: Annotated[int, Range(1, 64)] = 1
    """with how many robots at once: each, and each client, is a process of its own. Look at missed
    cycles and late ticks in the table: a machine that is too busy has some"""
    video: bool = True
    """film the first grasps of the first training of each row"""


def reproduce(options: Options, console: Console) -> None:
    """Train every arm with several seeds; let each policy grasp on the robot."""
    study = prepare("table2", options)
    study = replace(study, output=study.output / options.clock)
    if options.show:
        render(read_grasps(study.output / GRASPS), options, study.output, console)
        return
    grid = train(study, options, console)
    strange = Strange()
    asked = [
        (row, job_of(row, seed, study, grid, options))
        for row, (arm, _) in ROWS.items()
        for seed in range(len(grid.trainings.get(arm, ())))
    ]
    jobs = [job for _, job in asked]
    found = grasps_of_all(jobs, options.grasps, strange, options.robots, console)
    rows: dict[str, list[list[Grasp]]] = {}
    for (row, _), grasps in zip(asked, found, strict=True):
        rows.setdefault(row, []).append(grasps)
    write_grasps(rows, options.first_seed, study.output / GRASPS)
    write_csv(study.output / SIMULATED, ["arm", "seed", *_JUDGED], simulated(grid))
    render(rows, options, study.output, console)
    write_whole(study.output / "body.json", json.dumps(asdict(strange), indent=2) + "\n")
    finish(study, grid, console)


def simulated(grid: Grid) -> Iterator[list[Any]]:
    """How each training did in its own evaluation: means over its held-out episodes."""
    for arm, group in grid.trainings.items():
        for training, folder in zip(group, grid.folders[arm], strict=True):
            measures = (read_result(folder) or {})["measures"]
            yield [arm, training.run.seed, *(float(np.mean(measures[name])) for name in _JUDGED)]


def render(rows: Rows, options: Options, output: Path, console: Console) -> None:
    """All tables, from grasps and the simulated.csv that is in the folder."""
    write_table(rows, options, output, console)
    if BLOCKING in rows:
        lines = [comparison(row, rows) for row in rows if row != BLOCKING]
        show_table("Against blocking", lines, output / "comparison.md", console)
    held = verdicts(rows)
    if held:
        show_table("As expected?", held, output / "expectations.md", console)
    show_table(
        "The same policies, simulated", simulated_rows(output), output / "simulated.md", console
    )


def simulated_rows(output: Path) -> list[dict[str, str]]:
    """A line for each arm, of simulated.csv."""
    groups = {name: read_groups(output / SIMULATED, name, ("arm",)) for name in _JUDGED}
    return [
        {
            "trained": arm,
            "grasp success": _percent(np.concatenate(groups["success"][(arm,)])),
            "policy duration": _mean(np.concatenate(groups["policy_duration_s"][(arm,)]), " s"),
        }
        for (arm,) in groups["success"]
    ]


def write_grasps(rows: Rows, first_seed: int, path: Path) -> None:
    names = list(Grasp.__dataclass_fields__)
    records = (
        [row, first_seed + seed, k, *(getattr(one, name) for name in names)]
        for row, group in rows.items()
        for seed, grasps in enumerate(group)
        for k, one in enumerate(grasps)
    )
    write_csv(path, ["row", "seed", "grasp", *names], records)


def read_grasps(path: Path) -> Rows:
    """What grasps.csv says, row by row."""
    rows: dict[str, dict[str, list[Grasp]]] = {}
    fields = Grasp.__dataclass_fields__
    lines = read_csv(path, ("row", "seed", *fields), MOST_ROWS)
    with damage_of(path):
        for line in lines:
            one = Grasp(**{name: _VALUES[f.type](line[name]) for name, f in fields.items()})
            rows.setdefault(original(line["row"]), {}).setdefault(line["seed"], []).append(one)
    return {row: list(group.values()) for row, group in rows.items()}


# How a column is read, by the type of its field.
_VALUES: Mapping[Any, Callable[[str], Any]] = {
    "float": float, "int": int, "str": original, "bool": {"True": True, "False": False}.__getitem__,
}  # fmt: skip


def job_of(row: str, seed: int, study: Study, grid: Grid, options: Options) -> Job:
    """The grasps of one training in one row."""
    arm, mode = ROWS[row]
    training = grid.trainings[arm][seed]
    place = study.folder / "grasps" / options.clock / slug(row) / f"{training.run.seed:04d}.jsonl"
    return Job(
        training,
        grid.folders[arm][seed],
        mode,
        options.clock,
        place,
        name=f"{row}, training {training.run.seed}",
        films=_FILMED if options.video and seed == 0 else 0,
        film=study.output / slug(row),
    )


# --- Tables --------------------------------------------------------------------------------------


def write_table(rows: Rows, options: Options, output: Path, console: Console) -> None:
    """table.md with the paper's columns and ours."""
    lines = []
    for row, group in rows.items():
        success, duration = PAPER.get(row, ("", ""))
        every = [one for grasps in group for one in grasps]
        lines.append(
            {
                "row": row,
                "grasp success": _share(group),
                "each training": ", ".join(f"{np.mean([g.success for g in m]):.1%}" for m in group),
                "policy duration": _mean(means(group, "policy_duration_s"), " s"),
                "of successes": _mean(means(group, "policy_duration_s", succeeded), " s"),
                "cut off": _percent(means(group, "is_cut_off")),
                "completion": _mean(means(group, "completion"), "", 3),
                "jerk, m/s³": _mean(means(group, "jerk"), "", 1),
                "mean t_AS": _mean(means(group, "latency_s"), " s", 3),
                "largest t_AS": f"{max(one.most_latency_s for one in every):.3f} s",
                "missed cycles": str(sum(one.missed for one in every)),
                "late ticks": str(sum(one.late_ticks for one in every)),
                "faults": str(sum(bool(one.ended) for one in every)),
                "paper: success": success,
                "paper: duration, s": duration,
            }
        )
    first = next(iter(rows.values()))
    title = (
        f"Table 2, {CLOCKS[options.clock]}: {len(first[0])} grasps of each training, household "
        f"objects, a strange body{sketch(len(first))}"
    )
    show_table(title, lines, output / "table.md", console)
    text = (output / "table.md").read_text()
    write_whole(output / "table.md", f"{title}; ± is half of the 95 % interval.\n\n{text}")


def whole(one: Grasp) -> bool:
    """Whether no fault ended it."""
    return not one.ended


def succeeded(one: Grasp) -> bool:
    return one.success > 0.5


def means(group: Group, measure: str, counts: Callable[[Grasp], bool] = whole) -> Array:
    """The mean of each training over the grasps that count; success counts faults too.

    nan of a training that has none.
    """
    found = []
    for grasps in group:
        values = [getattr(one, measure) for one in grasps if measure == "success" or counts(one)]
        found.append(np.mean(values) if values else np.nan)
    return np.array(found)


def _mean(values: Array, unit: str, digits: int = 2) -> str:
    """The mean over trainings; its t-interval, where there are several."""
    spread = "" if len(values) < 2 else f" ± {half_width(values):.{digits}f}"
    return f"{values.mean():.{digits}f}{spread}{unit}"


def _percent(values: Array) -> str:
    spread = "" if len(values) < 2 else f" ± {half_width(values):.1%}"
    return f"{values.mean():.1%}{spread}"


def _share(group: Group) -> str:
    """Of one training there is the interval over its grasps alone (Wilson's)."""
    values = means(group, "success")
    if len(values) > 1:
        return _percent(values)
    low, high = share_interval([one.success for one in group[0]])
    return f"{values.mean():.1%} ({low:.1%} to {high:.1%} over its grasps)"


def comparison(row: str, rows: Rows) -> dict[str, str]:
    """What a row has more or less than blocking; intervals are Welch's, of the differences.

    Shorter by: seconds with their interval, and what share of blocking's mean that is.
    """
    mine, other = rows[row], rows[BLOCKING]

    def more(measure: str, scale: float, digits: int) -> str:
        return _difference(means(mine, measure), means(other, measure), scale, digits)

    return {
        "row": row,
        "success, points": more("success", 100, 1),
        "cut off, points": more("is_cut_off", 100, 1),
        "shorter by": _shorter(mine, other, whole),
        "successes shorter by": _shorter(mine, other, succeeded),
        "jerk, m/s³": more("jerk", 1, 1),
    }


def _shorter(mine: Group, other: Group, counts: Callable[[Grasp], bool]) -> str:
    measure = "policy_duration_s"
    a, b = means(mine, measure, counts), means(other, measure, counts)
    return f"{_difference(b, a, 1, 2).lstrip('+')} s ({1 - a.mean() / b.mean():.1%})"


def _difference(mine: Array, other: Array, scale: float, digits: int) -> str:
    found = difference_of(mine, other).scaled(scale)
    spread = f" ± {found.half:.{digits}f}" if min(len(mine), len(other)) > 1 else ""
    return f"{found.value:+.{digits}f}{spread}"


# --- As expected? --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """That a mean is above another: both moved by what was stated beforehand."""

    text: str
    more: Array  # of each training
    less: Array
    unit: str
    scale: float = 1.0


def expectations(rows: Rows) -> Iterator[Expected]:
    """What the specification says, as far as its rows are there."""
    seconds, wanted = "policy_duration_s", {BLOCKING, CONCURRENT, RUN_CONCURRENTLY} <= set(rows)
    if BLOCKING in rows and CONCURRENT in rows:
        b, c = rows[BLOCKING], rows[CONCURRENT]
        for share, counts, which in (
            (SHORTER, whole, "all grasps"),
            (SHORTER_SUCCESSES, succeeded, "successful grasps"),
        ):
            text = f"concurrent: {which} at least {share:.0%} shorter than blocking's"
            other, mine = means(b, seconds, counts), means(c, seconds, counts)
            yield Expected(text, (1 - share) * other, mine, "s")
        text = "concurrent: success within 2 points of blocking's, or above"
        yield Expected(text, means(c, "success") + POINTS, means(b, "success"), "points", 100)
        text = "concurrent: cut off at most 2 points more often than blocking"
        yield Expected(text, means(b, "is_cut_off") + POINTS, means(c, "is_cut_off"), "points", 100)
    if wanted:
        r = rows[RUN_CONCURRENTLY]
        text = f"{RUN_CONCURRENTLY}: "
        yield Expected(f"{text}shorter than blocking", means(b, seconds), means(r, seconds), "s")
        yield Expected(f"{text}longer than concurrent", means(r, seconds), means(c, seconds), "s")
        for name, group in (("blocking", b), ("concurrent", c)):
            above, below = means(group, "success"), means(r, "success")
            yield Expected(f"{text}success below that of {name}", above, below, "points", 100)


def verdicts(rows: Rows) -> list[dict[str, str]]:
    """yes, no or not decided: by Welch's test of what is beyond the line; Holm over all lines."""
    lines = list(expectations(rows))
    corrected = holm([differs(one.more, one.less, paired=False) for one in lines])
    found = []
    for one, p in zip(lines, corrected, strict=True):
        beyond = difference_of(one.more, one.less)
        is_decided = p <= ALPHA  # never of nan
        answer = ("yes" if beyond.value > 0 else "no") if is_decided else "not decided"
        digits = 2 if one.unit == "s" else 1
        found.append(
            {
                "expected beforehand": one.text,
                "beyond that": f"{_difference(one.more, one.less, one.scale, digits)} {one.unit}",
                "p (Holm)": "-" if np.isnan(p) else f"{p:.3f}",
                "came": answer,
            }
        )
    return found
