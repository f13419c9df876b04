"""What came of what a specification decided beforehand: comparisons, sensitivity, strata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from midstride.measure.statistics import Array, Comparison, compare, detectable, mean_of
from midstride.report.parts import p_text, spread_text
from midstride.scale.words import format_return
from midstride.sweep.disk import LATE

Rows = Sequence[Mapping[str, str]]
Lines = list[list[str]]
_BEST = 90  # percentile of what controls reach
_SO = {"more": "as expected", "less": "the opposite", "no difference shown": "not shown"}


def claims(design: Mapping[str, Any], returns: Mapping[str, Array]) -> Lines:
    """Each comparison that the specification names, and whether it came as expected."""
    asked = [one for one in design.get("compare", []) if {one["arm"], one["other"]} <= {*returns}]
    found = compare([(one["arm"], one["other"]) for one in asked], returns)
    heading = [
        "compared", "against", "difference of mean returns", "better in", "p, Holm", "expected",
        "so", "could have been shown",
    ]  # fmt: skip
    lines = [
        [
            c.arm, c.other, spread_text(c.difference, "+"), f"{c.better:.0%}", p_text(c.p_holm),
            one["expected"], _so(c, one["expected"]),
            format_return(detectable(returns[c.arm] - returns[c.other], len(asked))),
        ]
        for one, c in zip(asked, found, strict=True)
    ]  # fmt: skip
    return [heading, *lines] if lines else []


def _so(found: Comparison, expected: str) -> str:
    if expected == "either" or found.verdict == "no difference shown":
        return found.verdict if expected == "either" else _SO[found.verdict]
    return "as expected" if found.verdict == expected else "the opposite"


def failing_level(design: Mapping[str, Any], returns: Mapping[str, Array]) -> float | None:
    """The return below which a draw fails: a part of what controls reach with good draws."""
    controls = [returns[arm] for arm in design.get("controls", []) if arm in returns]
    if not controls:
        return None
    return float(design.get("fails_below", 0.5) * np.percentile(np.concatenate(controls), _BEST))


def sensitivity(design: Mapping[str, Any], returns: Mapping[str, Array]) -> tuple[Lines, Lines]:
    """How many draws fail in each arm; and the comparisons of the specification by that."""
    level = failing_level(design, returns)
    if level is None:
        return [], []
    works = {arm: (values >= level).astype(float) for arm, values in returns.items()}
    shares: Lines = [["arm", f"draws that fail (below {level:.0f})"]]
    for arm, each in works.items():
        failing = mean_of(1 - each)
        low, high = max(failing.low, 0.0), min(failing.high, 1.0)
        shares.append([arm, f"{failing.value:.0%} [{low:.0%}, {high:.0%}]"])
    asked = [one for one in design.get("compare", []) if {one["arm"], one["other"]} <= {*works}]
    compared: Lines = [["compared", "against", "fails less often by", "p, Holm", "so"]]
    for c in compare([(one["arm"], one["other"]) for one in asked], works):
        points = c.difference.scaled(100)
        text = f"{points.value:+.0f} [{points.low:+.0f}, {points.high:+.0f}] points"
        so = {"more": "less sensitive", "less": "more sensitive"}.get(c.verdict, "not shown")
        compared.append([c.arm, c.other, text, p_text(c.p_holm), so])
    return shares, compared if asked else []


def strata(rows: Rows, design: Mapping[str, Any], draws: Sequence[int]) -> tuple[Lines, Lines]:
    """Mean returns by latency and by execution of the draws; the comparisons among those alone.

    Their intervals are of the draws of a stratum; nothing was decided by them.
    """
    kept = [row for row in rows if int(row["draw"]) in set(draws) and row["status"] == "done"]
    arms = list(dict.fromkeys(row["arm"] for row in kept))
    asked = [(one["arm"], one["other"]) for one in design.get("compare", [])]
    asked = [pair for pair in asked if {*pair} <= {*arms}]
    means: Lines = [["draws with", "how many", *(_short(arm) for arm in arms)]]
    apart: Lines = [["draws with", "compared", "against", "difference of mean returns"]]
    for name, there in _strata(kept, set(design.get("controls", []))):
        found = {
            arm: {r["draw"]: float(r["mean_return"]) for r in kept
                  if r["arm"] == arm and r["draw"] in there}
            for arm in arms
        }  # fmt: skip
        cells = [format_return(float(np.mean([*v.values()]))) if v else "-" for v in found.values()]
        means.append([name, str(len(there)), *cells])
        for arm, other in asked:
            both = [draw for draw in found[arm] if draw in found[other]]
            if len(both) > 1:
                each = mean_of(np.array([found[arm][draw] - found[other][draw] for draw in both]))
                apart.append([name, arm, other, spread_text(each, "+")])
    return means if len(means) > 1 else [], apart if len(apart) > 1 else []


def _strata(rows: Rows, controls: set[str]) -> Iterator[tuple[str, set[str]]]:
    """What draws have in common, and which have it.

    A control is at latency 0 by itself; it is of the stratum of the draw that it belongs to.
    """
    where = {row["draw"]: row for row in rows if row["arm"] not in controls}
    for name in ("latency", "execution"):
        if rows and name in rows[0]:
            for value in sorted({row[name] for row in where.values()}, key=_size):
                yield f"{name} {value}", {d for d, row in where.items() if row[name] == value}


def _short(arm: str) -> str:
    return arm.replace(LATE, ", run late")


def _size(text: str) -> tuple[bool, float, str]:
    number = text.removesuffix("ms")
    is_number = number.replace(".", "", 1).isdigit()
    return not is_number, float(number) if is_number else 0.0, text
