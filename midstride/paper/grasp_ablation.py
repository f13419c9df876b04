"""Ablation of grasping: what is ours and not the paper's, taken away one at a time (hours).

From row 5 of Table 1. Writes table.md, difference.md, episodes.csv, curves.png, cost.md and
config.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from midstride.paper.grasping import compare_success, groups_of, read_study, write_study
from midstride.paper.study import GridOptions, finish, prepare, show_table, train

WHOLE = "as it is"


@dataclass(frozen=True)
class Options(GridOptions):
    """Options of the experiment."""


def reproduce(options: Options, console: Console) -> None:
    """Train every arm; write what taking a piece away changes."""
    study = prepare("grasp-ablation", options)
    if study.spec.common["observation"] != "image":
        raise ValueError("the ablation is of what is done with images: leave out observation")
    if options.show:
        render(study.output, console)
        return
    grid = train(study, options, console)
    groups = {arm: [r["measures"] for r in results] for arm, results in grid.results.items()}
    write_study(grid, groups, study.output, console)
    render(study.output, console)
    finish(study, grid, console)


def render(output: Path, console: Console) -> None:
    """table.md and difference.md from episodes.csv alone."""
    groups = read_study(output, console)
    success = {arm: groups_of(group, "success") for arm, group in groups.items()}
    if WHOLE in success and len(success) > 1:
        pairs = {(a, WHOLE): (group, success[WHOLE]) for a, group in success.items() if a != WHOLE}
        rows = compare_success(pairs, ("training", "against"))
        title = "What taking it away changes, in points"
        show_table(title, rows, output / "difference.md", console)
