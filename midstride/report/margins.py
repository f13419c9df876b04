"""Margins of several policies in one picture and one table: which stand what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from midstride.measure.margin import Margin
from midstride.report.margin import read_margin, share_text, spoken
from midstride.scale.words import label
from midstride.seconds import format_s


def margins(folders: Sequence[Path]) -> tuple[Figure, list[dict[str, str]]]:
    """A picture and the rows of a table, from folders that hold a margin.json each."""
    found = dict(read_margin(folder) for folder in folders)
    if not found:
        raise ValueError("there is no margin to show: give folders that hold a margin.json")
    return plot_margins(found), [row(name, one) for name, one in found.items()]


def row(name: str, found: Margin) -> dict[str, str]:
    """A policy's line of the table."""
    return {
        "policy": name,
        "period": format_s(found.period_s),
        "at 0": f"{found.curve[0].mean:.4g}",
        "stands latency": spoken(found.delay, format_s),
        "periods": f"{found.delay_s / found.period_s:.2g}",
        "jitter": "-" if found.jitter is None else f"± {spoken(found.jitter, format_s)}",
        "lost decisions": "-" if found.loss is None else spoken(found.loss, share_text),
        "thinks (p99)": format_s(found.decision_time.p99_s, 2),
    }


def plot_margins(found: Mapping[str, Margin]) -> Figure:
    """Left: margins and their intervals. Right: what is kept, against latency in periods."""
    figure = Figure(figsize=(11, 1.8 + 0.36 * len(found)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for k, (name, one) in enumerate(found.items()):
        y, colour = len(found) - k, f"C{k % 10}"
        high = one.curve[-1].at if one.delay.high is None else one.delay.high
        left.plot([1e3 * one.delay.low, 1e3 * high], [y, y], color=colour, lw=5, alpha=0.35)
        marker = ">" if one.delay.beyond else "o"
        left.plot([1e3 * one.delay_s], [y], marker, color=colour, ms=7)
        left.plot([1e3 * one.period_s], [y], "|", color="grey", ms=12)
        shares = [(p.at / one.period_s, p.kept) for p in one.curve if p.kept is not None]
        periods = [at for at, _ in shares]
        kept = [max(-0.1, min(1.2, share)) for _, share in shares]
        right.plot(periods, kept, color=colour, marker=".", lw=1.2, label=name)
    left.set_yticks(range(len(found), 0, -1), [label(name) for name in found])
    left.set_xscale("symlog", linthresh=10)
    longest = max(one.curve[-1].at for one in found.values())
    left.set_xlim(0, 1e3 * longest)
    ticks = [tick for tick in (0, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= 1e3 * longest]
    left.set_xticks(ticks, [str(tick) for tick in ticks])
    left.set(xlabel="latency (ms)", title="stands: margin, 95 % interval; grey: the period")
    for share in {one.share for one in found.values()}:
        right.axhline(share, color="grey", ls="--", lw=1)
    right.set(xlabel="latency (periods)", ylabel="kept of what it has at 0", ylim=(-0.15, 1.25))
    for axes in (left, right):
        axes.grid(alpha=0.25)
    return figure
