"""What pages are made of: style, tables and pictures, all inside of one file."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from matplotlib.figure import Figure

from midstride.report.curves import picture_of

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


def image(figure: Figure, text: str) -> str:
    data = base64.b64encode(picture_of(figure)).decode()
    return f'<img alt="{html.escape(text)}" src="data:image/png;base64,{data}">'
