"""Table 1 from its episodes alone: tables, comparisons, smoothness, what was claimed, a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console

from midstride.disk.read import damage_of, read_csv
from midstride.envs.vector import MEASURES
from midstride.measure.statistics import ALPHA, Estimate, difference_of, differs, holm, recovers
from midstride.paper.grasping import difference, groups_of, percent, summary, training_means
from midstride.paper.study import FEW, show_table, sketch
from midstride.report.curves import save_figure
from midstride.report.parts import p_text
from midstride.sweep.disk import MOST_ROWS, write_csv
from midstride.sweep.spec import read_spec

# Grasp success, episode duration (s) and action completion, as printed.
PAPER = {
    "1": ("92.72 % ± 1.10", "132.09 ± 5.70", "92.33 % ± 1.48"),
    "2": ("91.53 % ± 1.04", "120.81 ± 9.13", "89.53 % ± 2.27"),
    "3": ("84.11 % ± 7.61", "122.15 ± 14.6", "43.4 % ± 22.41"),
    "4": ("83.77 % ± 9.27", "97.16 ± 6.28", "34.69 % ± 16.80"),
    "5": ("92.55 % ± 4.39", "82.98 ± 5.74", "47.28 % ± 14.25"),
    "6": ("92.70 % ± 1.42", "87.15 ± 4.80", "50.09 % ± 14.25"),
    "7": ("93.49 % ± 1.04", "90.75 ± 4.15", "49.19 % ± 14.98"),
}
BLOCKING, UNAWARE = "2", "4"
LATE = "2 run concurrently"
SCRIPTED = ("scripted, blocking", "scripted, concurrent")
KNOWING = ("5", "6", "7")
MARGIN = 3.0  # points, of success: what "recovers" allows
EPISODES, HOUSEHOLD = "episodes.csv", "household.csv"
_LIMIT_S = 6.0  # of concurrent control: 20 decisions of 300 ms

Measures = Mapping[str, Sequence[float]]  # of the episodes of a training
Rows = dict[str, list[Measures]]  # by the number of the row; a training each


def name_of(row: str) -> str:
    """What a row is called, by its number."""
    names = {arm.partition(":")[0]: arm for arm in read_spec("table1").arms}
    return {**names, LATE: "2: blocking, run concurrently"}.get(row, row)


# --- Files ---------------------------------------------------------------------------------------


def write_episodes(path: Path, rows: Rows, first_seed: int) -> None:
    """Every episode of every training."""
    names = [name for name in MEASURES if all(name in m for g in rows.values() for m in g)]
    lines = (
        [row, seed, i, *(f"{value:.6g}" for value in values)]
        for row, group in rows.items()
        for seed, measures in enumerate(group, first_seed)
        for i, values in enumerate(zip(*(measures[name] for name in names), strict=True))
    )
    write_csv(path, ["row", "seed", "episode", *names], lines)


def read_episodes(path: Path) -> Rows:
    """What `write_episodes` wrote; of earlier ones, squared_jerk from jerk and duration."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    lines = read_csv(path, ("row", "seed", "success", "duration_s"), MOST_ROWS)
    with damage_of(path):
        for line in lines:
            measures = found.setdefault(line["row"], {}).setdefault(line["seed"], {})
            for name in MEASURES:
                if name in line:
                    measures.setdefault(name, []).append(float(line[name]))
    for training in (one for group in found.values() for one in group.values()):
        if "squared_jerk" not in training and "jerk" in training:
            pairs = zip(training["jerk"], training["duration_s"], strict=True)
            training["squared_jerk"] = [jerk**2 * seconds for jerk, seconds in pairs]
    return {row: list(group.values()) for row, group in found.items()}


def write_tables(output: Path, console: Console) -> None:
    """Everything that is told of the episodes in a folder."""
    rows = read_episodes(output / EPISODES)
    household = read_episodes(output / HOUSEHOLD) if (output / HOUSEHOLD).exists() else {}
    count = len(next(iter(rows.values()))[0]["success"])
    title = f"Table 1: {count} held-out episodes of each training"
    few = min(len(group) for row, group in rows.items() if row not in SCRIPTED)
    lines = [table_line(row, rows[row], household.get(row)) for row in rows]
    show_table(title + sketch(few), lines, output / "table.md", console)
    write_csv(output / "table.csv", ["row", "measure", "mean", "low", "high"], _numbers(rows))
    against = "Against row 2, blocking with the penalty"
    lines = [comparison(row, rows) for row in rows]
    show_table(against, lines, output / "comparison.md", console)
    if "jerk" in next(iter(rows.values()))[0]:
        show_table("Smoothness", smoothness(rows), output / "smoothness.md", console)
    lines = [one.line() for one in verdicts(rows)]
    if lines:
        show_table("What was claimed", lines, output / "claims.md", console, numbers=False)
    save_figure(output / "table.png", plot(rows))


def _numbers(rows: Rows) -> list[list[str]]:
    return [
        [name_of(row), name, *(f"{v:.6g}" for v in astuple(summary(groups_of(group, name))))]
        for row, group in rows.items()
        for name in MEASURES
        if name in group[0]
    ]


# --- Tables --------------------------------------------------------------------------------------


def table_line(
    row: str, group: Sequence[Measures], household: Sequence[Measures] | None
) -> dict[str, str]:
    """Ours beside the paper's."""
    success, duration, completion = PAPER.get(row, ("", "", ""))
    return {
        "row": name_of(row),
        "trainings": str(len(group)) if row not in SCRIPTED else "-",
        "success": percent(summary(groups_of(group, "success"))),
        "each": ", ".join(f"{mean:.1%}" for mean in training_means(groups_of(group, "success"))),
        "household objects": percent(summary(groups_of(household, "success"))) if household else "",
        "duration": seconds(summary(groups_of(group, "duration_s"))),
        "completion": percent(summary(groups_of(group, "completion"))),
        "paper: success": success,
        "paper: duration, s": duration,
        "paper: completion": completion,
    }


def seconds(found: Estimate) -> str:
    spread = "" if np.isnan(found.low) else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.value:.2f} s{spread}"


def in_time(group: Sequence[Measures], limit_s: float = _LIMIT_S + 1e-6) -> list[Sequence[float]]:
    """Successes that took no longer than concurrent control may."""
    return [
        [float(s and d <= limit_s) for s, d in zip(m["success"], m["duration_s"], strict=True)]
        for m in group
    ]


def comparison(row: str, rows: Rows) -> dict[str, str]:
    """What a row has more or less than row 2: in as many decisions, and in as much time."""

    def against(groups: Mapping[str, Sequence[Sequence[float]]], *units: str | float) -> str:
        if row == BLOCKING or BLOCKING not in rows:
            return ""
        scale, unit = units or (1, " s")
        return difference(groups[row], groups[BLOCKING], float(scale), str(unit))

    kept = {name: rows[name] for name in {row, BLOCKING} & rows.keys()}
    success = {name: groups_of(group, "success") for name, group in kept.items()}
    timely = {name: in_time(group) for name, group in kept.items()}
    duration = {name: groups_of(group, "duration_s") for name, group in kept.items()}
    won = {name: [_of_successes(m) for m in group] for name, group in kept.items()}
    return {
        "row": name_of(row),
        "success, points": against(success, 100, ""),
        f"recovers ({MARGIN:g} points)": "" if row == BLOCKING else recovered(row, rows),
        f"success within {_LIMIT_S:.0f} s": percent(summary(timely[row])),
        "points": against(timely, 100, ""),
        "duration": against(duration),
        "duration of successes": seconds(summary(won[row])) if any(won[row]) else "-",
        "difference": against(won),
    }


def _of_successes(measures: Measures) -> Sequence[float]:
    pairs = zip(measures["duration_s"], measures["success"], strict=True)
    return [duration for duration, success in pairs if success]


def recovered(row: str, rows: Rows) -> str:
    """Whether a row has row 2's success, less the margin."""
    if row not in rows or BLOCKING not in rows:
        return ""
    return recovers(_difference(rows, row, BLOCKING, "success").scaled(100), MARGIN)


def _means(rows: Rows, row: str, measure: str) -> list[float]:
    return training_means(groups_of(rows[row], measure))


def _difference(rows: Rows, row: str, other: str, measure: str) -> Estimate:
    return difference_of(_means(rows, row, measure), _means(rows, other, measure))


_SMOOTH = {"jerk": ("RMS jerk, m/s³", 1), "squared_jerk": ("squared jerk over an episode", 0),
           "path_m": ("path, m", 2), "completion": ("completion", 3)}  # fmt: skip


def smoothness(rows: Rows) -> list[dict[str, str]]:
    """Each measure with its interval, and jerk against unaware and against blocking control."""
    compared = {
        (row, other, measure): differs(
            np.array(_means(rows, row, measure)), np.array(_means(rows, other, measure)), False
        )
        for row in KNOWING
        for other in (UNAWARE, BLOCKING)
        for measure in ("jerk", "squared_jerk")
        if row in rows and other in rows
    }
    adjusted = dict(zip(compared, holm(list(compared.values())), strict=True))
    lines = []
    for row, group in rows.items():
        line = {"row": name_of(row)}
        for measure, (title, digits) in _SMOOTH.items():
            if all(measure in one for one in group):
                found = summary(groups_of(group, measure))
                spread = "" if np.isnan(found.low) else f" ± {found.half:.{digits}f}"
                line[title] = f"{found.value:.{digits}f}{spread}"
            else:
                line[title] = "-"
        for other, words in ((UNAWARE, "against unaware"), (BLOCKING, "against blocking")):
            for measure, short in (("jerk", "jerk"), ("squared_jerk", "squared jerk")):
                key = (row, other, measure)
                line[f"{short} {words}"] = _smoother(rows, key, adjusted.get(key))
        lines.append(line)
    return lines


def _smoother(rows: Rows, key: tuple[str, str, str], p: float | None) -> str:
    if p is None:
        return ""
    share = _difference(rows, *key).value / np.mean(_means(rows, key[1], key[2]))
    so = "no difference shown" if not p <= ALPHA else "smoother" if share < 0 else "less smooth"
    return f"{share:+.0%}, p {p_text(p)}: {so}"


# --- What was claimed ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper about Table 1, held against ours."""

    claim: str
    found: str
    so: str  # reproduced, contradicted, not shown; of what is not the paper's claim: yes, no
    trainings: int

    def line(self) -> dict[str, str]:
        few = "" if self.trainings >= FEW else f" (a sketch: {self.trainings} trainings)"
        return {"claim": self.claim, "found": self.found, "so": f"{self.so}{few}"}


def verdicts(rows: Rows) -> list[Verdict]:
    """Claim by claim, as far as its rows were trained: what recovers, then what differs."""
    return [*_recovering(rows), *_differing(rows)]


def _recovering(rows: Rows) -> Iterator[Verdict]:
    words = {"yes": "reproduced", "no": "contradicted"}
    for row in (*KNOWING, LATE):
        if {row, BLOCKING} <= rows.keys():
            e = _difference(rows, row, BLOCKING, "success").scaled(100)
            so = recovered(row, rows)
            text = f"{e.value:+.1f} points [{e.low:+.1f}, {e.high:+.1f}], margin {MARGIN:g}"
            claim = f"{name_of(row)}: recovers blocking control's success"
            few = min(len(rows[row]), len(rows[BLOCKING]))
            yield Verdict(claim, text, so if row == LATE else words.get(so, so), few)


# Row, the row that it is compared to, measure, the sign that was claimed, claim, unit.
_CLAIMED = (
    ("4", "2", "success", -1, "unaware has less success than blocking control", "points"),
    ("5", "2", "duration_s", -1, "vector-to-go is faster than blocking control", "s"),
    ("4", "2", "completion", -1, "concurrent control completes less of its actions", "points"),
    ("5", "4", "completion", 1, "vector-to-go completes more than unaware", "points"),
    ("6", "4", "completion", 1, "previous action completes more than unaware", "points"),
    ("7", "4", "completion", 1, "both complete more than unaware", "points"),
    ("5", "4", "jerk", -1, "vector-to-go has less jerk than unaware", "m/s³"),
    ("5", "2", "jerk", -1, "vector-to-go has less jerk than blocking control", "m/s³"),
    ("5", "4", "squared_jerk", -1, "the same, squared, over an episode: unaware", "m²/s⁵"),
    ("5", "2", "squared_jerk", -1, "the same, squared, over an episode: blocking", "m²/s⁵"),
    ("2", "1", "duration_s", -1, "the penalty makes blocking control faster", "s"),
    ("4", "3", "duration_s", -1, "the penalty makes unaware control faster", "s"),
)


def _differing(rows: Rows) -> Iterator[Verdict]:
    """Differences, all corrected together (Holm)."""
    asked = [one for one in _CLAIMED if {*one[:2]} <= rows.keys() and one[2] in rows[one[0]][0]]
    means = [[np.array(_means(rows, row, one[2])) for row in one[:2]] for one in asked]
    adjusted = holm([differs(mine, other, paired=False) for mine, other in means])
    for (row, other, measure, sign, claim, unit), p in zip(asked, adjusted, strict=True):
        scale, digits = (100, 1) if unit == "points" else (1, {"s": 2, "m/s³": 1}.get(unit, 0))
        e = _difference(rows, row, other, measure).scaled(scale)
        so = "not shown" if not p <= ALPHA else "reproduced"
        so = "contradicted" if so == "reproduced" and sign * e.value < 0 else so
        text = f"{e.value:+.{digits}f} {unit} [{e.low:+.{digits}f}, {e.high:+.{digits}f}]"
        few = min(len(rows[row]), len(rows[other]))
        yield Verdict(claim, f"{text}, p {p_text(p)}", so, few)


# --- A picture -----------------------------------------------------------------------------------


def plot(rows: Rows) -> Figure:
    """Ours with intervals, the paper's with its ± beside them where the unit is the same."""
    names = list(rows)
    figure = Figure(figsize=(11, 0.42 * len(names) + 1.3), layout="constrained")
    places = dict(zip(names, np.arange(len(names))[::-1], strict=True))
    titles = {"success": "grasp success", "duration_s": "duration, s", "completion": "completion"}
    for axes, (measure, title) in zip(
        figure.subplots(1, 3, sharey=True), titles.items(), strict=True
    ):
        for row, place in places.items():
            one = summary(groups_of(rows[row], measure))
            waits = row in ("1", "2", SCRIPTED[0])
            colour = "#4e79a7" if waits else "#f28e2b"
            half = float(np.nan_to_num(one.half))
            most = half if measure == "duration_s" else min(half, 1 - one.value)
            ends = [[half], [most]]
            axes.errorbar(one.value, place, xerr=ends, color=colour, fmt="o", ms=5, capsize=3)
        if measure != "duration_s":
            _draw_paper(axes, places, 0 if measure == "success" else 2)
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.set_xlim(0, 1.03)
        else:
            axes.set_xlim(left=0)
        axes.grid(axis="x", lw=0.4)
        axes.set_title(title, fontsize=10)
        axes.set_yticks(list(places.values()), [name_of(row) for row in places], fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(fontsize=7, loc="upper left")
    figure.supxlabel(
        "dots: means of trainings, 95 % intervals over them; blue waits while it thinks, orange "
        "does not",
        fontsize=8,
    )
    return figure


def _draw_paper(axes: Any, places: Mapping[str, Any], column: int) -> None:
    shown = [(row, place) for row, place in places.items() if row in PAPER]
    values, spreads = [], []
    for row, _ in shown:
        value, _, spread = PAPER[row][column].replace(" %", "").partition(" ± ")
        values.append(float(value) / 100)
        spreads.append(float(spread) / 100)
    at = [place - 0.22 for _, place in shown]
    axes.errorbar(
        values, at, xerr=spreads, fmt="D", color="0.55", ms=3, lw=0.8, capsize=2,
        label="the paper's, as printed",
    )  # fmt: skip
