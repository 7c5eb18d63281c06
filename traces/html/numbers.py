"""Figures in words for the report: shares, times, tokens and bytes. None is a dash.

Does not compute any figure.
"""

from __future__ import annotations

NONE = "-"
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def percent(rate: float | None, places: int = 1) -> str:
    return NONE if rate is None else f"{rate * 100:.{places}f} %"


def seconds(time_s: float | None) -> str:
    if time_s is None:
        return NONE
    if abs(time_s) < 1:
        return f"{time_s * 1e3:,.3g} ms" if time_s else "0 s"
    return f"{time_s:,.3g} s" if abs(time_s) < 100 else f"{time_s:,.0f} s"


def count(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.3g}"


def requests(number: float) -> str:
    return "1 request" if number == 1 else f"{number:,.0f} requests"


def short(value: float | None, unit: str = "") -> str:
    """Three digits and a decimal prefix: `1.23 M`, `512 GB`."""
    if value is None:
        return NONE
    for factor, prefix in _UNITS:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()
