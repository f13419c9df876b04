"""Measured latencies, read from CSV files."""

from __future__ import annotations

import csv
from pathlib import Path

from midstride.disk.read import read_bytes

LARGEST_TRACE = 16 * 2**20  # bytes


def read_trace(path: Path) -> list[float]:
    """Latencies in seconds: a column `latency_s` or `latency_ms`, or one bare column of seconds.

    Errors never show what is in the file: it may be another one than was meant.
    """
    try:
        # Spreadsheets put a mark before the text.
        text = read_bytes(path, LARGEST_TRACE).decode("utf-8-sig")
        lines = [row for row in csv.reader(text.splitlines()) if any(row)]
    except UnicodeDecodeError:
        raise ValueError(f"cannot read the latency trace {path}: it is not text") from None
    except (ValueError, csv.Error) as error:
        raise ValueError(f"cannot read the latency trace {path}: {error}") from None
    if not lines:
        raise ValueError(f"the latency trace {path} is empty: it needs one latency per line")

    header = [cell.strip().lower() for cell in lines[0]]
    column, unit, first = 0, 1.0, 0
    named = [i for i, name in enumerate(header) if name in ("latency_s", "latency_ms")]
    if named:
        column, first = named[0], 1
        unit = 1e-3 if header[column] == "latency_ms" else 1.0
    elif len(header) > 1:
        raise ValueError(
            f"the latency trace {path} has {len(header)} columns and none is named latency_s or "
            "latency_ms"
        )
    latencies_s = []
    for number, row in enumerate(lines[first:], start=first + 1):
        try:
            latencies_s.append(float(row[column]) * unit)
        except (ValueError, IndexError):
            raise ValueError(f"row {number} of the latency trace {path} has no latency") from None
    if not latencies_s:
        raise ValueError(f"the latency trace {path} has a header and no latencies")
    return latencies_s
