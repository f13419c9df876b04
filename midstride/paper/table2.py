"""Table 2: QT-Opt grasps on a robot that does not wait, blocking and concurrent (hours).

Policies are trained in simulation with latencies that were measured on the robot, and run on a body
that differs from the one that they were trained on (`realtime/strange.py`), with household objects.
One row is not trained: the blocking policies, run concurrently. On the wall clock the robot is a
process of its own, and a grasp takes the time it takes; on the virtual clock the same robot lives
through the same draws of latency, and everything can be repeated to the last bit. Every grasp is
kept: the same command, interrupted, goes on with the next. Writes, in a folder for each clock:
table.md, comparison.md, grasps.csv, body.json, config.json and a film of each row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from midstride.disk.files import write_whole
from midstride.measure.statistics import difference_of, half_width, share_interval
from midstride.paper.robot_grasps import ClockName, Job, grasps_of
from midstride.paper.study import GridOptions, Study, finish, prepare, show_table, sketch, train
from midstride.realtime.drive import Run
from midstride.realtime.grasps import Grasp
from midstride.realtime.recording import Recalls
from midstride.realtime.runtime import Mode
from midstride.realtime.strange import Strange
from midstride.report.film import Frames, save_video, titled
from midstride.report.robot_film import FPS, robot_film
from midstride.settings import Range
from midstride.sweep.disk import write_csv
from midstride.sweep.engine import Grid
from midstride.sweep.spec import slug
from midstride.tasks.grasp.env import CONTROLLED

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
_FILMED = 3  # grasps of the first training of each row

Rows = Mapping[str, Sequence[Sequence[Grasp]]]  # row -> training -> grasps


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""

    clock: ClockName = "wall"
    """wall: the robot is a process that does not wait, and a grasp takes seconds; virtual: the same
    robot and the same draws of latency, as fast as it can be computed, to the last bit"""
    grasps: Annotated[int, Range(1, 10_000)] = 100
    """how many grasps each training has, the same for all"""
    video: bool = True
    """film some grasps of the first training of each row"""


def reproduce(options: Options, console: Console) -> None:
    """Train every arm with several seeds; let each policy grasp on the robot."""
    study = prepare("table2", options)
    study = replace(study, output=study.output / options.clock)
    grid = train(study, options, console)
    strange = Strange()
    rows = {
        row: [
            run_row(row, seed, study, grid, options, strange, console)
            for seed in range(len(grid.trainings[arm]))
        ]
        for row, (arm, _) in ROWS.items()
        if arm in grid.trainings
    }
    write_table(rows, options, study.output, console)
    if BLOCKING in rows:
        lines = [comparison(row, rows) for row in rows if row != BLOCKING]
        show_table("Against blocking", lines, study.output / "comparison.md", console)
    write_whole(study.output / "body.json", json.dumps(asdict(strange), indent=2) + "\n")
    finish(study, grid, console)


def run_row(
    row: str,
    seed: int,
    study: Study,
    grid: Grid,
    options: Options,
    strange: Strange,
    console: Console,
) -> list[Grasp]:
    """The grasps of one training in one row."""
    arm, mode = ROWS[row]
    training = grid.trainings[arm][seed]
    place = study.folder / "grasps" / options.clock / slug(row) / f"{training.run.seed:04d}.jsonl"
    job = Job(training, grid.folders[arm][seed], mode, options.clock, place)
    films: list[Frames] = []

    def film(k: int, run: Run, robot: Recalls) -> None:
        if options.video and seed == 0 and k < _FILMED:
            frames = robot_film(robot, run, CONTROLLED)
            if frames is not None:
                films.append(titled(frames, f"{row}, grasp {k} {CLOCKS[options.clock][:20]}"))
            if films and k == _FILMED - 1:
                save_video(study.output / f"{slug(row)}.mp4", np.concatenate(films), FPS)

    every = grasps_of(job, options.grasps, strange, film)
    said = f"{row}, training {training.run.seed}"
    return list(track(every, said, options.grasps, console=console))


# --- Tables --------------------------------------------------------------------------------------


def write_table(rows: Rows, options: Options, output: Path, console: Console) -> None:
    """table.md with the paper's columns and ours, and grasps.csv."""
    lines = []
    for row, group in rows.items():
        success, duration = PAPER.get(row, ("", ""))
        lines.append(
            {
                "row": row,
                "grasp success": _share(group),
                "each training": ", ".join(f"{np.mean([g.success for g in m]):.1%}" for m in group),
                "policy duration": _mean(group, "policy_duration_s", " s"),
                "completion": _mean(group, "completion", "", 3),
                "jerk, m/s³": _mean(group, "jerk", "", 1),
                "mean t_AS": _mean(group, "latency_s", " s", 3),
                "faults": str(sum(bool(one.ended) for grasps in group for one in grasps)),
                "paper: success": success,
                "paper: duration, s": duration,
            }
        )
    first = next(iter(rows.values()))
    title = (
        f"Table 2, {CLOCKS[options.clock]}: {options.grasps} grasps of each training, household "
        f"objects, a strange body{sketch(len(first))}"
    )
    show_table(title, lines, output / "table.md", console)
    text = (output / "table.md").read_text()
    write_whole(output / "table.md", f"{title}; ± is half of the 95 % interval.\n\n{text}")
    names = list(Grasp.__dataclass_fields__)
    records = (
        [row, options.first_seed + seed, k, *(getattr(one, name) for name in names)]
        for row, group in rows.items()
        for seed, grasps in enumerate(group)
        for k, one in enumerate(grasps)
    )
    write_csv(output / "grasps.csv", ["row", "seed", "grasp", *names], records)


def means(group: Sequence[Sequence[Grasp]], measure: str) -> NDArray[np.float64]:
    """The mean of each training; of durations and the like, over grasps without a fault."""
    found = []
    for grasps in group:
        counted = [one for one in grasps if measure == "success" or not one.ended]
        values = [getattr(one, measure) for one in counted]
        found.append(np.mean(values) if values else np.nan)
    return np.array(found)


def _mean(group: Sequence[Sequence[Grasp]], measure: str, unit: str, digits: int = 2) -> str:
    """The mean over trainings; its t-interval, where there are several."""
    values = means(group, measure)
    spread = "" if len(values) < 2 else f" ± {half_width(values):.{digits}f}"
    return f"{values.mean():.{digits}f}{spread}{unit}"


def _share(group: Sequence[Sequence[Grasp]]) -> str:
    """Of one training there is the interval over its grasps alone (Wilson's)."""
    values = means(group, "success")
    if len(values) > 1:
        return f"{values.mean():.1%} ± {half_width(values):.1%}"
    low, high = share_interval([one.success for one in group[0]])
    return f"{values.mean():.1%} ({low:.1%} to {high:.1%} over its grasps)"


def comparison(row: str, rows: Rows) -> dict[str, str]:
    """What a row has more or less than blocking, and what was expected."""
    found = {
        name: (means(rows[row], name), means(rows[BLOCKING], name))
        for name in ("success", "policy_duration_s", "jerk")
    }
    mine_s, other_s = (values.mean() for values in found["policy_duration_s"])
    points = 100 * (found["success"][0].mean() - found["success"][1].mean())
    shorter = 1 - mine_s / other_s
    expected = ""
    if row == CONCURRENT:
        expected = (
            f"at least 49 % shorter: {'yes' if shorter >= 0.49 else 'no'}; "
            f"success within 2 points: {'yes' if points >= -2 else 'no'}"
        )
    return {
        "row": row,
        "success, points": _difference(*found["success"], 100, 1),
        "policy duration, s": _difference(*found["policy_duration_s"], 1, 2),
        "shorter by": f"{shorter:.1%}",
        "jerk, m/s³": _difference(*found["jerk"], 1, 1),
        "expected beforehand": expected,
    }


def _difference(
    mine: NDArray[np.float64], other: NDArray[np.float64], scale: float, digits: int
) -> str:
    found = difference_of(mine, other).scaled(scale)
    spread = f" ± {found.half:.{digits}f}" if min(len(mine), len(other)) > 1 else ""
    return f"{found.value:+.{digits}f}{spread}"
