"""A run on a robot, afterwards: every decision as a table, quantiles, pictures, a page."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from midstride.disk.files import commit, machine, versions, write_whole
from midstride.realtime.drive import Run
from midstride.realtime.journal import COLUMNS, PARTS, Decision, quantiles
from midstride.report.parts import CSS, html_table, image
from midstride.scale.words import label
from midstride.seconds import format_s
from midstride.sweep.disk import write_csv

DECISIONS, PAGE, RECORD, FILM = "decisions.csv", "run.html", "run.json", "film.mp4"
TRACE_COLUMNS = ("latency_s", "observation_s", "inference_s", "command_s")
_NAMES = {
    "observation_s": "observation (capture to runtime)",
    "inference_s": "inference (runtime to decision)",
    "command_s": "command (decision to robot, waiting included)",
    "latency_s": "total: t_AS (capture to robot)",
    "lateness_s": "lateness of captures",
}
_COLOURS = ("#7a9cc6", "#31456a", "#c98b4b", "#2a7f62")


def write_run(
    folder: Path, run: Run, name: str, about: Mapping[str, Any], is_filmed: bool = False
) -> None:
    """Write decisions.csv, run.json and run.html, which shows film.mp4 if there is one."""
    write_csv(
        folder / DECISIONS, COLUMNS, ([_cell(one, c) for c in COLUMNS] for one in run.decisions)
    )
    record = {
        "name": name,
        "counts": counts(run),
        "seconds": run.lasted_s,
        "score": run.score,
        "ended": run.ended,
        "watchdog_s": run.watchdog_s,
        "longest_silence_s": run.longest_silence_s(),
        "film": FILM if is_filmed else None,
        "quantiles_s": {part: list(of) for part, of in quantiles(run.decisions).items()},
        "about": dict(about),
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
    }
    write_whole(folder / RECORD, json.dumps(record, indent=2, allow_nan=False) + "\n")
    write_whole(folder / PAGE, page(run, name, record))


def write_trace(path: Path, decisions: Sequence[Decision]) -> int:
    """The latencies of decisions that came into force, as `--latency trace:` reads them."""
    lines = [one for one in decisions if one.fate == "in force"]
    if not lines:
        raise ValueError("no decision came into force: there is no latency to write down")
    write_csv(path, TRACE_COLUMNS, ([_cell(one, c) for c in TRACE_COLUMNS] for one in lines))
    return len(lines)


def counts(run: Run) -> dict[str, int]:
    fates = ("in force", "stale", "lost", "refused", "pending")
    found = {fate: run.count(fate) for fate in fates}
    said = {"missed": run.missed, "starved": run.starved, "late ticks": run.late_ticks}
    return {"decisions": len(run.decisions), **found, **said}


def quantile_table(decisions: Sequence[Decision]) -> list[list[str]]:
    """Names, p50, p99 and the largest, as text."""
    rows = [["", "p50", "p99", "most"]]
    for part, values in quantiles(list(decisions)).items():
        rows.append([_NAMES[part], *(format_s(value, 3) for value in values)])
    return rows


def page(run: Run, name: str, record: Mapping[str, Any]) -> str:
    of_counts = [["", ""], *([key, str(n)] for key, n in counts(run).items())]
    pictures = [image(plot_parts(run.decisions), "latencies"), image(plot_time(run), "over time")]
    title = html.escape(name)
    film = f"<video controls muted src={FILM} width=480></video>" if record["film"] else ""
    watchdog = "no watchdog" if run.watchdog_s is None else f"of {format_s(run.watchdog_s)}"
    silence = f"{format_s(run.longest_silence_s(), 3)} ({watchdog})"
    of_counts.append(["longest time without a fresh command", silence])
    ended = html.escape(run.ended or "as it was asked to")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<style>{CSS}</style><h1>{title}</h1>"
        f"<p>{run.lasted_s:.1f} s on the robot{_scored(run)}; it ended: {ended}.</p>"
        f"{film}"
        f"<h2>Latency</h2>{html_table(quantile_table(run.decisions))}{''.join(pictures)}"
        f"<h2>What became of decisions</h2>{html_table(of_counts)}"
        f"<h2>How it was run</h2><pre>{html.escape(json.dumps(record['about'], indent=2))}</pre>"
        "</html>\n"
    )


def plot_parts(decisions: Sequence[Decision]) -> Figure:
    """How the latencies are distributed, part by part."""
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    axes = figure.subplots()
    for part, colour in zip(PARTS, _COLOURS, strict=True):
        values = _milliseconds(decisions, part)
        if len(values):
            shown = label(_NAMES[part])
            axes.hist(values, bins=60, histtype="step", color=colour, label=shown)
    axes.set(xlabel="ms", ylabel="decisions")
    axes.legend(fontsize=8)
    return figure


def plot_time(run: Run) -> Figure:
    """The latency of every decision in the order of captures; those that were dropped below."""
    figure = Figure(figsize=(7.5, 3.0), layout="constrained")
    axes = figure.subplots()
    done = [one for one in run.decisions if one.latency_s is not None]
    since = [one.captured_s - run.began_s for one in done]
    axes.plot(since, [1e3 * (one.latency_s or 0.0) for one in done], ".", ms=3, color=_COLOURS[3])
    dropped = [one.captured_s - run.began_s for one in run.decisions if one.fate == "stale"]
    axes.plot(dropped, np.zeros(len(dropped)), "x", ms=5, color="#b5483a")
    axes.set(xlabel="seconds of the run", ylabel="t_AS (ms); x: stale")
    axes.set_ylim(bottom=min(0.0, *axes.get_ylim()))
    axes.grid(alpha=0.3)
    return figure


def _scored(run: Run) -> str:
    return "" if run.score is None else f", reward {run.score:.1f}"


def _milliseconds(decisions: Sequence[Decision], part: str) -> list[float]:
    values = [getattr(one, part) for one in decisions]
    return [1e3 * value for value in values if value is not None]


def _cell(decision: Decision, column: str) -> object:
    value = getattr(decision, column)
    if isinstance(value, float):
        return repr(round(value, 9))
    if value is None or isinstance(value, (int, str)):
        return value
    return " ".join(f"{number:.6g}" for number in np.ravel(value))
