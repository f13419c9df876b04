"""How numbers of trainings are written, wherever they are shown."""

from __future__ import annotations


def format_return(value: float | None, sign: str = "") -> str:
    """Returns of thousands without digits, returns of one (success shares) with two; None as -.

    sign: "+" shows that of positive numbers too
    """
    if value is None:
        return "-"
    return f"{value:{sign}.0f}" if abs(value) >= 10 else f"{value:{sign}.2f}"
