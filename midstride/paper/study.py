"""What experiments share: a specification is trained by the grid engine; its columns are written.

The options of an experiment say how many trainings, on which engine, and what is other than the
specification has it. Its folder is named by what is other.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from midstride.disk.files import write_provenance, write_whole
from midstride.disk.read import damage_of, read_csv, read_json
from midstride.disk.runs import read_curve, read_record, read_result
from midstride.measure.statistics import half_width
from midstride.report.parts import markdown_table
from midstride.scale.engines import make_engine
from midstride.scale.words import plain, saved
from midstride.settings import Range, Settings, check_name, checked, from_text
from midstride.sweep.disk import MOST_ROWS, original, outcome, write_csv
from midstride.sweep.engine import Grid, run_grid
from midstride.sweep.spec import Spec, check_spec, expand, read_spec, slug

FEW = 8  # trainings of each arm: a comparison of fewer is a sketch
VIDEO_SEED = 2_000_000
_LONG_NAME = 100  # of what is unusual


@dataclass(frozen=True)
class RunOptions(Settings):
    """Where an experiment trains, and what is other than its specification has it."""

    kind: ClassVar[str] = "option"

    set: tuple[str, ...] = ()
    """NAME=VALUE ...: other values for settings of all arms, for example observation=state
    objects=3; a list is written with commas, hidden=64,64"""
    arms: tuple[str, ...] = ()
    """which arms to train, by name, or by how their names begin: the part before a comma or a
    colon (default: all)"""
    engine: Literal["local", "ray"] = "local"
    """local: one process per core; ray: tasks on a Ray cluster (needs midstride[ray])"""
    address: str | None = None
    """address of the Ray cluster, HOST:PORT or auto (default: start one on this machine)"""
    workers: Annotated[int | None, Range(1)] = None
    """how many trainings run at once (default: one per core)"""
    output: str | None = None
    """folder for tables, plots and configuration (default: results/ and the experiment's name)"""
    runs: str = "runs"
    """folder for the trainings"""
    show: bool = False
    """train nothing: make tables and pictures again from the files in the output folder"""
    any_code: bool = False
    """take trainings that other code made, if their settings agree; otherwise they are trained
    again. config.json says which code trained how many"""


@dataclass(frozen=True)
class GridOptions(RunOptions):
    """Options of experiments that train each arm with several seeds."""

    seeds: Annotated[int, Range(1)] = 3
    """how many trainings each arm has; a comparison that matters has at least 8"""
    first_seed: Annotated[int, Range(0)] = 0
    """seed of the first training of each arm; the others count up from it"""


@dataclass(frozen=True)
class Study:
    """An experiment as it is to be run: its specification, and where its files go."""

    spec: Spec
    output: Path
    folder: Path  # of the trainings
    options: RunOptions


def prepare(name: str, options: RunOptions) -> Study:
    """The specification called `name` with what the options change, and its folders."""
    spec = with_set(read_spec(name), options.set)
    unusual = _unusual(read_spec(name), spec)
    folder = Path(options.runs) / "-".join([name, *unusual])
    spec = with_arms(spec, options.arms)
    chosen = ["arms", *map(slug, options.arms)] if options.arms else []
    output = options.output or Path("results") / "-".join([name, *unusual, *chosen])
    return Study(spec, Path(output), folder, options)


def train(study: Study, options: GridOptions, console: Console) -> Grid:
    """Every arm with several seeds; an error if a training failed, after the others."""
    spec = replace(study.spec, first_seed=options.first_seed)
    trainings = [trial.training.hash for trial in expand(spec, 1)]
    if len(set(trainings)) < len(trainings):
        raise ValueError("two of the arms to compare are the same: leave out what makes them so")
    engine = make_engine(options.engine, options.workers, options.address)
    borrow(spec, options.seeds, study.folder, options.any_code)
    grid = run_grid(
        spec, options.seeds, study.folder, engine, console, True, any_code=options.any_code
    )
    if grid.failed:
        arms = ", ".join(dict.fromkeys(row["arm"] for row in grid.failed))
        raise RuntimeError(
            f"{len(grid.failed)} of {len(grid.rows)} trainings failed ({arms}): the same command "
            "tries them again"
        )
    return grid


def borrow(spec: Spec, seeds: int, folder: Path, any_code: bool = False) -> None:
    """Take trainings that other experiments have finished: several have some of the same."""
    finished = {
        (read_result(path.parent) or {}).get("hash"): path.parent
        for path in folder.parent.glob("*/trials/*/*/result.json")
    }
    for trial in expand(spec, seeds):
        name, place = trial.training.hash, folder / trial.place
        if not place.exists() and name in finished and outcome(finished[name], name, any_code):
            part = place.with_name(f".{place.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            for file in filter(Path.is_file, finished[name].rglob("*")):
                write_whole(part / file.relative_to(finished[name]), file.read_bytes())
            part.replace(place)


# --- What is other than the specification has it -------------------------------------------------


def with_set(spec: Spec, texts: Sequence[str]) -> Spec:
    """The specification with other values, each given as NAME=VALUE, in all arms."""
    given: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise ValueError(f"set takes NAME=VALUE, got {text!r}")
        given[name] = value
    differing = {name for arm in spec.arms.values() for name in arm}
    for name in given:
        if name in differing:
            raise ValueError(f"{name} is what the arms of {spec.name} differ in: it cannot be set")
        if name == "seed":
            raise ValueError("the seeds are counted up from first_seed: set that instead")
    first: dict[str, str] = {name: given[name] for name in ("task", "agent") if name in given}
    spec = replace(spec, common={**spec.common, **first})
    types: dict[str, Any] = {}
    for arm in spec.arms:
        types |= {name: hints[0] for name, hints in spec.types(arm).items()}
    values: dict[str, Any] = dict(first)
    for name, text in given.items():
        check_name(name, tuple(types), "setting")
        if name not in first:
            values[name] = checked(name, _read(name, text, types[name]), types[name])
    changed = "".join(f"\n# set: {text}" for text in texts)
    spec = replace(spec, common={**spec.common, **values}, source=spec.source + changed)
    check_spec(spec)
    return spec


def _read(name: str, text: str, hint: Any) -> Any:
    """A value from text; commas separate the items of a list, unless the value is one text."""
    try:
        return from_text(name, [text], hint)
    except ValueError:
        if "," not in text:
            raise
    return from_text(name, text.split(","), hint)


def with_arms(spec: Spec, names: Sequence[str]) -> Spec:
    """The specification with some of its arms only."""
    if not names:
        return spec
    begins = {arm: re.split(r"[:,]", arm)[0] for arm in spec.arms}
    for name in names:
        if name not in begins and name not in begins.values():
            known = ", ".join(dict.fromkeys(begins.values()))
            raise ValueError(f"{spec.name} has no arm {name}: choose from {known}")
    arms = {arm: s for arm, s in spec.arms.items() if arm in names or begins[arm] in names}
    return replace(spec, arms=arms)


def _unusual(usual: Spec, spec: Spec) -> list[str]:
    """What is not as usual, for the name of a folder."""
    named = {"task": "{}", "agent": "{}", "observation": "{}", "objects": "{}-objects"}
    parts = []
    for name, value in spec.common.items():
        if name not in usual.common or usual.common[name] != value:
            text = "_".join(map(str, value)) if isinstance(value, tuple) else str(value)
            parts.append(re.sub(r"[^\w.-]+", "_", named.get(name, f"{name}_{{}}").format(text)))
    return parts if len("-".join(parts)) <= _LONG_NAME else [f"set-{spec.hash}"]


# --- What is written -----------------------------------------------------------------------------


def show_table(
    title: str,
    rows: Sequence[Mapping[str, str]],
    path: Path,
    console: Console,
    numbers: bool = True,
) -> None:
    """A table on the console and as Markdown; the first column is text, so may the others be."""
    headings = list(rows[0])
    table = Table(title=plain(title, "table.title"))
    for heading in headings:
        is_number = numbers and heading != headings[0]
        table.add_column(plain(heading), justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*map(plain, row.values()))
    console.print(table)
    lines = [headings, *(list(row.values()) for row in rows)]
    write_whole(path, markdown_table(lines, numbers))


def percent(shares: np.ndarray) -> str:
    """The mean of shares of each training, with its 95 % interval."""
    spread = f" ± {100 * half_width(shares):.1f}" if len(shares) > 1 else ""
    return f"{100 * shares.mean():.1f}{spread} %"


def sketch(seeds: int) -> str:
    """What a title says where there are too few trainings to compare."""
    number = "one training" if seeds == 1 else f"{seeds} trainings"
    return f" (a sketch: {number} each, not {FEW})" if seeds < FEW else ""


def finish(study: Study, grid: Grid, console: Console) -> None:
    """Write config.json, unless it tells of these trainings already; say where all is.

    Drawing a picture again, with whatever options, is no new result.
    """
    config = {
        "specification": study.spec.source,
        "options": study.options.to_dict(),
        "seeds": sorted({t.run.seed for group in grid.trainings.values() for t in group}),
        "trainings": {arm: group[0].to_dict() for arm, group in grid.trainings.items() if group},
        "trainings of each": {arm: len(group) for arm, group in grid.trainings.items()},
    }
    path, seconds, trained = study.output / "config.json", round(grid.seconds, 1), trained_by(grid)
    try:
        record = read_json(path, {"config": dict, "seconds": float})
        before = {**record["config"], "options": {}}, record["seconds"], record.get("trained")
        now = json.loads(json.dumps(({**config, "options": {}}, seconds, trained)))
        is_same = list(before) == now
    except ValueError:
        is_same = False
    if not is_same:
        write_provenance(study.output, config, seconds, trained)
    console.print(saved(study.output))


def title_of(output: Path) -> str:
    """Task and agent of a result, as its config.json says, for pictures that are drawn again."""
    try:
        record = read_json(output / "config.json", {"config": dict})["config"]
        first = next(iter(record["trainings"].values()))
        return f"{first['environment']['task']}, {first['agent']['agent']}"
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return output.name


def trained_by(grid: Grid) -> list[dict[str, Any]]:
    """Which code, on what, trained how many of the policies: as their run folders say."""
    found: list[dict[str, Any]] = []
    for folder in (folder for group in grid.folders.values() for folder in group):
        record = read_record(folder)
        made = {name: record.get(name) for name in ("commit", "code", "versions", "machine")}
        for one in found:
            if {**one, "trainings": 0} == {**made, "trainings": 0}:
                one["trainings"] += 1
                break
        else:
            found.append({**made, "trainings": 1})
    return found


def read_groups(
    path: Path, column: str, keys: Sequence[str] = ("kind",)
) -> dict[tuple[str, ...], list[list[float]]]:
    """Of a file of episodes: what the keys say -> training -> values of a column."""
    found: dict[tuple[str, ...], dict[str, list[float]]] = {}
    lines = read_csv(path, (*keys, "seed", column), MOST_ROWS)
    with damage_of(path):
        for line in lines:
            group = found.setdefault(tuple(original(line[key]) for key in keys), {})
            group.setdefault(line["seed"], []).append(float(line[column]))
    return {key: list(group.values()) for key, group in found.items()}


def read_curves(path: Path, column: str = "evaluation") -> dict[str, list[dict[int, float]]]:
    """What `write_curves` wrote: arm -> training -> values by steps."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    lines = read_csv(path, ("kind", "seed", "steps", column), MOST_ROWS)
    with damage_of(path):
        for line in lines:
            group = found.setdefault(original(line["kind"]), {})
            group.setdefault(line["seed"], {})[int(line["steps"])] = float(line[column])
    return {arm: list(group.values()) for arm, group in found.items()}


def write_curves(grid: Grid, path: Path, column: str = "evaluation") -> None:
    """The learning curve of every training: what pictures of curves are drawn from."""
    every = (
        [arm, training.run.seed, steps, value]
        for arm, folders in grid.folders.items()
        for training, folder in zip(grid.trainings[arm], folders, strict=True)
        for steps, value in read_curve(folder, column).items()
    )
    write_csv(path, ["kind", "seed", "steps", column], every)


def write_returns(
    path: Path, totals: Mapping[str, Mapping[float, Sequence[Sequence[float]]]], first_seed: int
) -> None:
    """Every episode of every policy at each latency: arm -> latency -> training -> returns."""
    heading = ["kind", "seed", "latency_s", "episode", "return"]
    every = (
        [arm, seed, latency_s, i, value]
        for arm, by_latency in totals.items()
        for latency_s, group in by_latency.items()
        for seed, values in enumerate(group, first_seed)
        for i, value in enumerate(values)
    )
    write_csv(path, heading, every)
