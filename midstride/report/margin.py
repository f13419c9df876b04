"""A margin as a file, a picture and a page; several policies in one picture."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from midstride.disk.files import commit, machine, versions, write_whole
from midstride.disk.read import Hints, Missing, read_json
from midstride.measure.decision_time import DecisionTime
from midstride.measure.margin import Line, Margin, Point
from midstride.report.curves import save_figure
from midstride.report.parts import CSS, html_table, image
from midstride.scale.words import label
from midstride.seconds import format_s
from midstride.settings import one_line

MARGIN, PICTURE, PAGE = "margin.json", "margin.png", "margin.html"
_ABOUT: Hints = {"name": str, "margin": dict, "about": dict, "versions": dict}
_KEPT, _LOST, _INK = "#2a7f62", "#b5483a", "#31456a"


# --- On disk -------------------------------------------------------------------------------------


def write_margin(folder: Path, found: Margin, name: str, about: Mapping[str, Any]) -> None:
    """Write margin.json, margin.png and margin.html.

    about: how it was asked for, to be kept with it
    """
    record = {
        "name": name,
        "verdict": verdict(found),
        "delay_s": found.delay_s,
        "delay_interval_s": found.delay_interval_s,
        "margin": asdict(found),
        "about": dict(about),
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
    }
    picture = plot_margin(found, name)
    write_whole(folder / MARGIN, json.dumps(record, indent=2, allow_nan=False) + "\n")
    save_figure(folder / PICTURE, picture)
    write_whole(folder / PAGE, page(found, name, picture, record))


def read_margin(path: Path) -> tuple[str, Margin]:
    """Name and margin, from a margin.json or its folder."""
    file = path / MARGIN if path.is_dir() else path
    record = read_json(file, _ABOUT)
    try:
        return record["name"], _margin_from(record["margin"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = one_line(error)
        raise ValueError(f"{file} is not a margin that midstride wrote: {said}") from None


def was_asked(folder: Path, about: Mapping[str, Any]) -> bool:
    """Whether a folder holds the answer to the same question, by this version."""
    try:
        record = read_json(folder / MARGIN, _ABOUT)
    except Missing:
        return False
    made_by = record["versions"].get("midstride")
    return record["about"] == about and made_by == versions().get("midstride")


def _margin_from(values: Mapping[str, Any]) -> Margin:
    found = dict(values)
    for name in ("delay", "jitter", "loss"):
        line = found[name]
        if line is not None:
            points = tuple(Point(**point) for point in line["points"])
            found[name] = Line(**{**line, "recovers": tuple(line["recovers"]), "points": points})
    found["under"] = {text: Point(**point) for text, point in found["under"].items()}
    found["decision_time"] = DecisionTime(**found["decision_time"])
    return Margin(**{field.name: found[field.name] for field in fields(Margin)})


# --- In words ------------------------------------------------------------------------------------


def stands(found: Margin) -> str:
    """'15 ms [10 ms, 20 ms]', or 'at least 400 ms'."""
    return spoken(found.delay, format_s)


def spoken(line: Line, form: Any) -> str:
    """A margin and its interval."""
    high = "beyond" if line.high is None else form(line.high)
    interval = f"[{form(line.low)}, {high}]"
    return f"{'at least ' if line.beyond else ''}{form(line.margin)} {interval}"


def verdict(found: Margin) -> str:
    """One sentence: what it takes, and what it stands."""
    p99 = format_s(found.decision_time.p99_s, 2)
    text = f"thinks {p99} (p99 on this machine), stands {stands(found)}"
    if found.decision_time.p99_s > found.delay.margin:
        text += ": thinking alone may take more than it stands"
    elif found.delay.low == 0 < found.delay.margin:
        text += ": more episodes are needed to be sure of any of it"
    if found.delay.recovers:
        again = ", ".join(format_s(at) for at in found.delay.recovers)
        text += f"; it keeps again at {again}, beyond latencies that it does not stand"
    return text


def share_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


# --- One picture ---------------------------------------------------------------------------------


def plot_margin(found: Margin, name: str) -> Figure:
    """The curve with its margin; smoothness below; jitter and loss at the side."""
    sides = [(n, line) for n, line in (("jitter", found.jitter), ("loss", found.loss)) if line]
    figure = Figure(figsize=(11 if sides else 7.5, 6), layout="constrained")
    grid = figure.add_gridspec(
        2, 2 if sides else 1, height_ratios=(2, 1), width_ratios=(2, 1) if sides else (1,)
    )
    curve = figure.add_subplot(grid[0, 0])
    _plot_line(curve, found, found.delay, 1e3)
    _mark_others(curve, found)
    curve.set(xlabel="latency (ms)", ylabel=_measured(found))
    _stretch(curve, found)
    curve.legend(fontsize=8, loc="upper right")
    _plot_smoothness(figure.add_subplot(grid[1, 0], sharex=curve), found)
    for place, (kind, line) in enumerate(sides):
        axes = figure.add_subplot(grid[place, 1])
        _plot_line(axes, found, line, 1e3 if kind == "jitter" else 100.0)
        unit = "spread around it (± ms)" if kind == "jitter" else "lost decisions (%)"
        form = format_s if kind == "jitter" else share_text
        axes.set_xlabel(unit)
        axes.set_title(
            f"{kind} at {format_s(found.at_s)}:\nstands {spoken(line, form)}", fontsize=9
        )
    figure.suptitle(f"{label(name)} stands {stands(found)} of latency", fontsize=13)
    return figure


def _plot_line(axes: Any, found: Margin, line: Line, unit: float) -> None:
    at = [unit * point.at for point in line.points]
    means = [point.mean for point in line.points]
    errors = [
        [max(0.0, point.mean - point.low) for point in line.points],
        [max(0.0, point.high - point.mean) for point in line.points],
    ]
    high = at[-1] if line.high is None else unit * line.high
    axes.axvspan(unit * line.low, high, color=_KEPT, alpha=0.18, lw=0, label="its 95 % interval")
    axes.axvline(unit * line.margin, color=_KEPT, lw=2, label="margin")
    axes.axhline(found.bar, color=_LOST, ls="--", lw=1, label=_bar_text(found))
    axes.errorbar(at, means, yerr=errors, color=_INK, marker="o", ms=4, lw=1.4, capsize=2)
    axes.grid(alpha=0.25)
    every = [point.mean for point in found.curve]  # the same scale for all three
    axes.set_ylim(*_limits([*every, *means, found.bar]))


def _stretch(axes: Any, found: Margin) -> None:
    """Even up to the margin, then by doublings, as latencies are tried."""
    at = [1e3 * point.at for point in found.curve]
    axes.set_xscale("symlog", base=2, linthresh=max(1e3 * found.delay_s, at[1]))
    powers = [at[0], *(1e3 * found.tick_s * 2**k for k in range(31)), at[-1]]
    shown = [tick for tick in at if any(abs(tick - power) < 1e-6 for power in powers)]
    last = shown[-1]
    shown = [tick for tick in shown if tick == last or last == 0 or tick / last < 0.8]
    axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
    axes.minorticks_off()


def _limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.08 * (high - low or 1.0)
    return low - room, high + room


def _mark_others(axes: Any, found: Margin) -> None:
    """Decision time and the period at the axis; latencies that were given."""
    bottom = axes.get_xaxis_transform()
    p99 = 1e3 * found.decision_time.p99_s
    axes.plot([p99], [0.02], "^", color="black", ms=7, transform=bottom, clip_on=False,
              label=f"thinks {format_s(found.decision_time.p99_s, 2)} (p99)")  # fmt: skip
    axes.axvline(1e3 * found.period_s, color="grey", lw=0.8, ls=":",
                 label=f"period {format_s(found.period_s)}")  # fmt: skip
    for k, (text, point) in enumerate(found.under.items()):
        spread = [[point.mean - point.low], [point.high - point.mean]]
        style = {"marker": "D", "color": f"C{k + 1}", "label": _short(text), "zorder": 5}
        axes.errorbar([1e3 * point.at], [point.mean], yerr=spread, **style)


def _plot_smoothness(axes: Any, found: Margin) -> None:
    at = [1e3 * point.at for point in found.curve]
    changes = [point.changes_per_s for point in found.curve]
    axes.plot(at, changes, marker="o", ms=3, color="C1")
    axes.set_ylabel("sides changed per s", color="C1")
    axes.set(xlabel="latency (ms)", title="smoothness of what was commanded")
    axes.title.set_fontsize(9)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    jerks = [(1e3 * p.at, p.jerk) for p in found.curve if p.jerk is not None]
    if jerks:
        other = axes.twinx()
        other.plot(*zip(*jerks, strict=True), marker="s", ms=3, color="C4")
        other.set_ylabel("jerk (half ranges / s²)", color="C4")
        other.set_ylim(bottom=0)


def _measured(found: Margin) -> str:
    return "share of episodes that succeed" if found.measure == "success" else "return"


def _bar_text(found: Margin) -> str:
    if found.floor is None:
        return f"threshold {found.bar:.4g}"
    return f"{found.share:.0%} of what it has at 0"


def _short(text: str) -> str:
    return text if len(text) < 30 else f"{text[:12]}...{text[-14:]}"


# --- The page ------------------------------------------------------------------------------------


def page(found: Margin, name: str, picture: Figure, record: Mapping[str, Any]) -> str:
    """All of it in one file that needs no network."""
    rows = [
        ["latency", "episodes", found.measure, "95 % interval", "kept", "jerk", "changes per s"]
    ]
    rows += [_row(format_s(point.at), point) for point in found.curve]
    rows += [_row(text, point) for text, point in found.under.items()]
    facts = [
        ["question", "answer"],
        ["delay margin", spoken(found.delay, format_s)],
        ["jitter margin" + _at(found), _or_none(found.jitter, format_s)],
        ["loss margin" + _at(found), _or_none(found.loss, share_text)],
        ["must keep", f"{found.bar:.4g} ({_bar_text(found)}{_floor_text(found)})"],
        ["own decision time", f"{format_s(found.decision_time.p50_s, 3)} (p50), "
                              f"{format_s(found.decision_time.p99_s, 3)} (p99)"],
        ["period, tick, thinker", f"{format_s(found.period_s)}, {format_s(found.tick_s)}, "
                                  f"{found.thinker}"],
        ["episodes", f"{found.episodes} in {found.seconds:.0f} s, seeds from {found.seed}"],
    ]  # fmt: skip
    about = json.dumps({k: record[k] for k in ("about", "versions", "commit", "machine")}, indent=2)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(name)}: how much latency it stands</title><style>{CSS}</style>
<h1>{html.escape(name)}</h1>
<p><strong>It {html.escape(verdict(found))}.</strong></p>
{image(picture, f"{found.measure} against latency, with the delay margin and its interval")}
{html_table(facts, "text")}
<p class=note>The margin is the longest latency before the first at which the mean falls below what
must be kept. Green: its 95 % interval. Episodes have the same seeds at every latency.</p>
<h2>What was measured</h2>
{html_table(rows)}
<p class=note>Jerk: root mean square of the second difference of the action, in half ranges per s².
Changes: how often an element of the action changes sides.</p>
<h2>How it was made</h2><pre>{html.escape(about)}</pre>
</html>
"""


def _row(first: str, point: Point) -> list[str]:
    jerk = "-" if point.jerk is None else f"{point.jerk:.3g}"
    interval = f"{point.low:.4g} to {point.high:.4g}"
    return [
        first, str(point.episodes), f"{point.mean:.4g}", interval, share_text(point.kept), jerk,
        f"{point.changes_per_s:.3g}",
    ]  # fmt: skip


def _at(found: Margin) -> str:
    return f" at {format_s(found.at_s)}"


def _or_none(line: Line | None, form: Any) -> str:
    return "not measured" if line is None else spoken(line, form)


def _floor_text(found: Margin) -> str:
    return "" if not found.floor else f", above a floor of {found.floor:.4g}"
