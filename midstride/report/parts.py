"""What pages are made of: style, tables and pictures, all inside of one file."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from midstride.measure.statistics import Estimate
from midstride.report.curves import picture_of
from midstride.scale.words import format_return, printable

CSS = """
:root { color-scheme: light dark; --line: #8884; --faint: #777; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; }
img { max-width: 100%; background: white; border-radius: 6px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child, .text td:nth-child(2), .text th:nth-child(2) { text-align: left; }
th { font-weight: 600; } p.note, caption { color: var(--faint); }
.wide { overflow-x: auto; font-size: .8rem; max-height: 30rem; } pre { overflow-x: auto; }
"""


def html_table(lines: Sequence[Sequence[str]], kind: str = "") -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "\n".join(row(line, "td") for line in lines[1:])
    head = row(lines[0], "th")
    return f'<table class="{kind}"><thead>{head}</thead><tbody>\n{body}</tbody></table>'


def spread_text(found: Estimate, sign: str = "") -> str:
    """A value and its interval."""
    if np.isnan(found.low):
        return format_return(found.value, sign)
    value, low, high = (format_return(v, sign) for v in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def p_text(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def markdown_table(lines: Sequence[Sequence[str]], numbers: bool = True) -> str:
    """Lines of cells, the first of them headings; the first column is text.

    numbers: whether the others are
    """
    under = ["---", *["---:" if numbers else "---"] * (len(lines[0]) - 1)]
    rows = [lines[0], under, *lines[1:]]
    return "".join(f"| {' | '.join(map(_markdown, cells))} |\n" for cells in rows)


def _markdown(cell: str) -> str:
    """A cell of a Markdown table as text: no other columns, no HTML."""
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", printable(cell)).replace("|", r"\|")


def image(figure: Figure, text: str) -> str:
    data = base64.b64encode(picture_of(figure)).decode()
    return f'<img alt="{html.escape(text)}" src="data:image/png;base64,{data}">'
