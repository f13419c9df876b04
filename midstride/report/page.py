"""The report of a sweep: plots, tables and one self-contained page, all from its table alone."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from midstride.disk.files import write_whole
from midstride.measure.statistics import (
    Array,
    Comparison,
    by_arm,
    compare,
    groups,
    iqm,
    mean_of,
    paired,
)
from midstride.report import decided
from midstride.report.curves import save_figure
from midstride.report.parts import CSS, html_table, image, markdown_table, p_text, spread_text
from midstride.scale.words import format_return, label, plain, saved
from midstride.settings import shown
from midstride.sweep.disk import SWEEP, TABLE, read_about, read_table, write_csv

REPORT_FILES = (
    "report.html", "sorted.png", "marginals.png", "arms.csv", "pairs.csv", "claims.md",
    "sensitivity.md", "strata.md",
)  # fmt: skip
Rows = Sequence[Mapping[str, str]]
_MOST_ARMS, _MOST_PANELS = 64, 128
_LINES = ("-", "--", ":", "-.")
_SHORT_NAME = 24  # of an arm: two stand side by side under one panel


def write_report(folder: Path, console: Console) -> None:
    """Write sorted.png, marginals.png, arms.csv, pairs.csv and report.html beside the table."""
    about, rows = report_of(folder)
    name, swept, design = about["name"], about["swept"], about.get("design", {})
    returns = by_arm(rows)
    draws, values = paired(returns)
    failed = [row for row in rows if row["status"] != "done"]
    if len(draws) < 2:
        console.print(f"{len(draws)} draws are finished in every arm: too few for a report yet.")
        return
    arms = list(returns)
    by_name = dict(zip(arms, values, strict=True))
    summary = {arm: (mean_of(v), float(iqm(v)), float(v.max())) for arm, v in by_name.items()}
    pairs = compare(every_pair(by_name), by_name)
    figures = {
        "sorted": plot_sorted(arms, values, name),
        "marginals": plot_marginals(rows, draws, swept),
    }
    for stem, figure in figures.items():
        save_figure(folder / f"{stem}.png", figure)
    arm_table = [
        ["arm", "trials", "area under the curve", "interquartile mean", "best"],
        *(
            [arm, str(len(draws)), spread_text(area), format_return(middle), format_return(best)]
            for arm, (area, middle, best) in summary.items()
        ),
    ]
    write_csv(
        folder / "arms.csv",
        ["arm", "draws", *_spread("area"), "iqm", "best"],
        ([arm, len(draws), *astuple(s[0]), *s[1:]] for arm, s in summary.items()),
    )
    write_csv(
        folder / "pairs.csv",
        ["arm", "other", *_spread("difference"), "better", "p", "p_holm"],
        ([p.arm, p.other, *astuple(p.difference), p.better, p.p, p.p_holm] for p in pairs),
    )
    shares, compared = decided.sensitivity(design, by_name)
    means, apart = decided.strata(rows, design, draws)
    decisions = {
        "What was decided beforehand": ("claims", decided.claims(design, by_name)),
        "How many draws fail": ("sensitivity", shares),
        "Who fails less often": ("sensitivity", compared),
        "By latency and execution": ("strata", means),
        "What was compared, by latency and execution": ("strata", apart),
    }
    for stem in ("claims", "sensitivity", "strata"):
        texts = [markdown_table(lines) for s, lines in decisions.values() if s == stem and lines]
        if texts:
            write_whole(folder / f"{stem}.md", "\n".join(texts))
    tables = {"Arms": arm_table, **{title: lines for title, (_, lines) in decisions.items()}}
    tables["Pair by pair"] = pairs_table(pairs)
    page = _page(about, len(draws), tables, figures, rows, failed)
    write_whole(folder / "report.html", page)
    _show(console, f"{name}: {len(draws)} paired draws", arm_table)
    console.print(saved(folder, "/report.html, table.csv, sorted.png, marginals.png"))


def every_pair(returns: Mapping[str, Array]) -> list[tuple[str, str]]:
    """Every arm against every other; the better by mean comes first."""
    ordered = sorted(returns, key=lambda arm: -float(returns[arm].mean()))
    return [(arm, other) for i, arm in enumerate(ordered) for other in ordered[i + 1 :]]


def pairs_table(pairs: Sequence[Comparison]) -> list[list[str]]:
    """Comparisons as lines of text."""
    heading = ["arm", "against", "difference of mean returns", "better in", "p", "p, Holm", "so"]
    return [
        heading,
        *(
            [p.arm, p.other, spread_text(p.difference, "+"), f"{p.better:.0%}", p_text(p.p),
             p_text(p.p_holm), p.verdict]
            for p in pairs
        ),
    ]  # fmt: skip


def report_of(folder: Path) -> tuple[dict[str, Any], Rows]:
    """What a sweep says of itself, and its table, if they fit together."""
    rows, about = read_table(folder), read_about(folder)
    for name in about["swept"]:
        if name not in rows[0]:
            raise ValueError(f"{folder / SWEEP} is damaged: {TABLE} has no column {shown(name)}")
    arms = {row["arm"] for row in rows}
    if len(arms) > _MOST_ARMS or len(about["swept"]) > _MOST_PANELS:
        raise ValueError(
            f"{folder} has {len(arms)} arms and {len(about['swept'])} settings that differ: a "
            f"report is of at most {_MOST_ARMS} and {_MOST_PANELS}"
        )
    return about, rows


# --- Plots ---------------------------------------------------------------------------------------


def plot_sorted(arms: Sequence[str], values: Array, title: str) -> Figure:
    """The return of every trial, sorted, best first: one line per arm."""
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.subplots()
    share = np.linspace(0, 100, values.shape[1])
    for arm, style, of_arm in zip(arms, _styles(arms), values, strict=True):
        text = f"{label(arm)} ({format_return(float(of_arm.mean()))})"
        axes.plot(share, np.sort(of_arm)[::-1], marker=".", ms=4, label=text, **style)
    axes.set(xlabel="trials, best first (%)", ylabel="return", title=label(title))
    axes.set_ylim(bottom=min(0.0, float(values.min())))
    axes.grid(alpha=0.3)
    axes.legend(title="arm (area)", fontsize=8, title_fontsize=8)
    return figure


def plot_marginals(rows: Rows, draws: Sequence[int], swept: Sequence[str]) -> Figure:
    """Mean return by value of each drawn hyperparameter, one line per arm; (draws) of each value.

    A value of one draw is a cross of its own.
    """
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    kept = [row for row in rows if int(row["draw"]) in set(draws) and row["status"] == "done"]
    drawn = [
        name
        for name in swept
        if any(len({r[name] for r in kept if r["arm"] == a}) > 1 for a in arms)
    ]
    columns = min(3, max(1, len(drawn)))
    lines = max(1, -(-len(drawn) // columns))
    figure = Figure(figsize=(4 * columns, 2.9 * lines + 0.6), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for axes, name in zip(panels, drawn, strict=False):
        labels, group = groups([row[name] for row in kept])
        for arm, style in zip(arms, _styles(arms), strict=True):
            of_arm = np.array([row["arm"] == arm for row in kept])
            if not of_arm.any():
                continue
            returns = np.array([float(row["mean_return"]) for row in kept])
            counts = [int((of_arm & (group == k)).sum()) for k in range(len(labels))]
            means = [returns[of_arm & (group == k)].mean() if n else np.nan
                     for k, n in enumerate(counts)]  # fmt: skip
            # One draw is no mean: it stands alone, and no line leads to it.
            joined = [mean if n > 1 else np.nan for mean, n in zip(means, counts, strict=True)]
            axes.plot(range(len(labels)), joined, marker="o", ms=3, label=label(arm), **style)
            alone = [k for k, n in enumerate(counts) if n == 1]
            axes.plot(alone, [means[k] for k in alone], "x", ms=5, color=style["color"])
        draws_of = [len({row["draw"] for row, k in zip(kept, group, strict=True) if k == which})
                    for which in range(len(labels))]  # fmt: skip
        ticks = [f"{_short(value)}\n({n})" for value, n in zip(labels, draws_of, strict=True)]
        axes.set_xticks(range(len(labels)), ticks, fontsize=7)
        axes.set_title(label(name.replace("_", " ")), fontsize=10)
        axes.grid(alpha=0.3)
    lowest = min((float(row["mean_return"]) for row in kept), default=0.0)
    panels[0].set_ylim(bottom=min(0.0, lowest))  # shared by all
    for axes in panels[len(drawn) :]:
        axes.set_axis_off()
    for axes in panels[::columns]:
        axes.set_ylabel("mean return")
    shown: dict[str, Any] = {}
    for axes in panels:
        handles, names = axes.get_legend_handles_labels()
        shown |= dict(zip(names, handles, strict=True))
    if shown:
        beside = columns if columns > 1 else 1 + (max(map(len, shown)) < _SHORT_NAME)
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.2 * -(-len(shown) // beside))
        figure.legend(
            list(shown.values()), list(shown), loc="outside lower center", ncols=beside, fontsize=8
        )
    return figure


def _styles(arms: Sequence[str]) -> list[dict[str, Any]]:
    """A colour for each arm; arms named "A, b" and "C, b" share b's colour and differ in line."""
    heads = list(dict.fromkeys(arm.partition(", ")[0] for arm in arms))
    tails = list(dict.fromkeys(arm.partition(", ")[2] for arm in arms))
    if len(tails) < 2 or "" in tails:
        return [{"color": f"C{i}"} for i in range(len(arms))]
    return [
        {
            "color": f"C{tails.index(arm.partition(', ')[2])}",
            "linestyle": _LINES[heads.index(arm.partition(", ")[0]) % len(_LINES)],
        }
        for arm in arms
    ]


def _short(value: str) -> str:
    return "per\nepisode" if value.startswith("episode:") else label(value.replace(" ", "x"))


# --- Tables and page -----------------------------------------------------------------------------


def _spread(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]


def _show(console: Console, title: str, lines: Sequence[Sequence[str]]) -> None:
    table = Table(title=plain(title, "table.title"))
    for i, heading in enumerate(lines[0]):
        table.add_column(heading, justify="right" if i else "left")
    for line in lines[1:]:
        table.add_row(*map(plain, line))
    console.print(table)


def _page(
    about: Mapping[str, Any],
    draws: int,
    tables: Mapping[str, Sequence[Sequence[str]]],
    figures: Mapping[str, Figure],
    rows: Rows,
    failed: Rows,
) -> str:
    notes = "" if not failed else f"<p class=note>{len(failed)} trials failed; see the table.</p>"
    every = [list(rows[0]), *([_number(cell) for cell in row.values()] for row in rows)]
    arms, *others = [(title, lines) for title, lines in tables.items() if lines]
    below = "\n".join(
        f"<h2>{html.escape(title)}</h2><div class=wide>{html_table(lines, 'text')}</div>"
        for title, lines in others
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(about["name"])}: midstride sweep</title><style>{CSS}</style>
<h1>{html.escape(about["name"])}</h1>
<p class=note>{draws} paired draws in each of {len(arms[1]) - 1} arms. In brackets: 95 % intervals
over draws (Student's t). Comparisons are within draws; p for one of them, and for there being so
many (Holm).</p>{notes}
<h2>Every trial, sorted</h2>
<p>A larger area under a line means that fewer choices of hyperparameters fail.</p>
{image(figures["sorted"], "Return of every trial, sorted")}
{html_table(arms[1])}
{below}
<h2>Which hyperparameters mattered</h2>
{image(figures["marginals"], "Mean return by value of each hyperparameter")}
<h2>Every trial</h2><div class=wide>{html_table(every)}</div>
<h2>What was swept</h2><pre>{html.escape(about["specification"])}</pre>
</html>
"""


def _number(cell: str) -> str:
    try:
        return cell if cell.isdigit() else f"{float(cell):.4g}"
    except ValueError:
        return cell
