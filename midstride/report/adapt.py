"""An adaptation as a file, a picture and a page."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from midstride.disk.files import commit, machine, versions, write_whole
from midstride.measure.curve import Returns, kept_around
from midstride.report.curves import save_figure
from midstride.report.parts import CSS, html_table, image
from midstride.scale.words import label
from midstride.seconds import format_s

RECORD, PICTURE, PAGE = "adapt.json", "adapt.png", "adapt.html"
_BEFORE, _AFTER, _BAR = "#b5483a", "#2a7f62", "#555555"


def write_adapted(
    folder: Path, summary: Mapping[str, Any], curves: Sequence[Sequence[Returns]]
) -> None:
    """Write adapt.json, adapt.png and adapt.html.

    summary: of the adaptation, as `adapted.summary` gives it, with a name
    curves: before and after, over latencies
    """
    record = {
        **summary,
        "stands_before": kept_around(curves[0], summary["bar"], 0.0),
        "stands_after": kept_around(curves[1], summary["bar"], summary["latencies_s"][-1]),
        "before": _points(curves[0]),
        "after": _points(curves[1]),
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
    }
    picture = plot_adapted(record)
    write_whole(folder / RECORD, json.dumps(record, indent=2, allow_nan=False) + "\n")
    save_figure(folder / PICTURE, picture)
    write_whole(folder / PAGE, page(record, picture))


def stands(kept: Sequence[float] | None) -> str:
    """Latencies in words: '10 ms', '20 ms to 50 ms', 'none of these latencies'."""
    if kept is None:
        return "none of these latencies"
    low, high = kept
    if low == 0:
        return format_s(high)
    return f"only {format_s(low)}" if low == high else f"only {format_s(low)} to {format_s(high)}"


def _points(curve: Sequence[Returns]) -> list[dict[str, Any]]:
    return [{"latency_s": at.latency_s, **at.summary()} for at in curve]


def plot_adapted(record: Mapping[str, Any]) -> Figure:
    """Left: return over latency, before and after. Right: stages of the student."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for name, words, colour in (
        ("before", "as it was", _BEFORE),
        ("after", "adapted", _AFTER),
    ):
        at = [1e3 * point["latency_s"] for point in record[name]]
        means = [point["mean"] for point in record[name]]
        errors = [
            [max(0.0, p["mean"] - p["interval"][0]) for p in record[name]],
            [max(0.0, p["interval"][1] - p["mean"]) for p in record[name]],
        ]
        left.errorbar(
            at, means, yerr=errors, color=colour, marker="o", ms=4, capsize=2, label=words
        )
    left.axhline(record["bar"], color=_BAR, ls="--", lw=1, label=f"{record['share']:.0%} of frozen")
    ends = [1e3 * record["latencies_s"][k] for k in (0, -1)]
    if ends[0] == ends[1]:
        left.axvline(ends[0], color=_AFTER, alpha=0.25, lw=6, label="adapted to")
    else:
        left.axvspan(*ends, color=_AFTER, alpha=0.15, lw=0, label="adapted to")
    left.set(xlabel="latency (ms)", ylabel="return", xlim=(0, None))
    left.grid(alpha=0.25)
    left.legend(fontsize=8)
    _plot_stages(right, record)
    before, after = stands(record["stands_before"]), stands(record["stands_after"])
    figure.suptitle(f"{label(record['name'])} stands {before}; adapted {after}")
    return figure


def _plot_stages(axes: Any, record: Mapping[str, Any]) -> None:
    """How far the student's errors reach."""
    stages = record["stages"]
    numbers = range(len(stages))
    axes.plot(numbers, [s["held_out"] for s in stages], "s-", color="C4", label="held out")
    axes.plot(numbers, [s["visited"] for s in stages], "o-", color="C1", label="that it visits")
    axes.set_xticks(list(numbers), ["record"] + [f"round {k}" for k in numbers if k])
    axes.set_ylim(bottom=0)
    axes.set(ylabel="error (half ranges of an action)", title="errors of the student, in states")
    axes.title.set_fontsize(9)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)


def page(record: Mapping[str, Any], picture: Figure) -> str:
    """All of it in one file that needs no network."""
    rows = [["", "return", "95 % interval", "kept"]]
    for name, words in (("frozen", "the policy without latency"),
                        ("as_it_is", f"the policy at {record['latency']}"),
                        ("adapted", f"adapted to {record['latency']}")):  # fmt: skip
        low, high = record[name]["interval"]
        kept = {"frozen": 1.0, "as_it_is": record["kept_before"], "adapted": record["kept_after"]}
        mean = f"{record[name]['mean']:.4g}"
        rows.append([words, mean, f"{low:.4g} to {high:.4g}", f"{kept[name]:.0%}"])
    stages = [["taught from", "pairs", "error, not taught", "error, visits itself", "return"]]
    for k, stage in enumerate(record["stages"]):
        name = "the frozen world" if k == 0 else f"and round {k}"
        numbers = f"{stage['held_out']:.3g}", f"{stage['visited']:.3g}", f"{stage['mean']:.4g}"
        stages.append([name, f"{stage['pairs']:,}", *numbers])
    curve = [["latency", "as it was", "adapted"]]
    for before, after in zip(record["before"], record["after"], strict=True):
        at = f"{1e3 * before['latency_s']:g} ms"
        curve.append([at, f"{before['mean']:.4g}", f"{after['mean']:.4g}"])
    about = json.dumps(
        {name: record[name] for name in ("about", "versions", "commit", "machine")}, indent=2
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(record["name"])}: adapted to latency</title><style>{CSS}</style>
<h1>{html.escape(record["name"])}</h1>
<p><strong>{html.escape(record["verdict"])}</strong> It stood
{html.escape(stands(record["stands_before"]))}; adapted it stands
{html.escape(stands(record["stands_after"]))}.</p>
{image(picture, "return over latency, before and after, and the student's errors")}
{html_table(rows)}
<p class=note>Kept: of what the policy has without latency, above {record["floor"]:.4g}. The student
observes what the environment does, and: {html.escape(", ".join(record["knowledge"]))}.</p>
<h2>The student</h2>
{html_table(stages)}
<p class=note>{record["steps_frozen"]:,} steps of the frozen world, {record["steps_latency"]:,} with
latency, {record["seconds"]:.0f} s. Errors: root mean square, in half ranges of an action (of
discrete actions the share of others).</p>
<h2>Before and after, over latency</h2>
{html_table(curve)}
<h2>How it was made</h2><pre>{html.escape(about)}</pre>
</html>
"""
