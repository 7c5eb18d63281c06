"""Bytes, shares and ranges in words, as sentences, tables and options write them. Does not read
sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from statistics import median


def gigabytes(count: int, space: str = " ") -> str:
    """`512 GB`, `1.5 TB`, or `6 MB`; with decimals below 10 GB. Without the space, an option reads
    it."""
    if 0 < count < 1000:
        return f"{count}{space}B"
    if 0 < count < 10**7:
        return f"{count / 1e6:.4g}{space}MB"
    if count >= 10**12:
        return f"{count / 1e12:{'' if not space else ','}.4g}{space}TB"
    return f"{count / 1e9:.4g}{space}GB"


def digits(amount: float, most: int = 3, sign: str = "") -> str:
    """So many digits, or all before the point; never as a power of ten."""
    if abs(amount) >= 10**most:
        return f"{amount:{sign},.0f}"
    return f"{Decimal(f'{amount:.{most}g}'):{sign},f}"


def percent(rate: float, places: int = 0) -> str:
    return f"{rate * 100:.{places}f} %"


def span(values: Sequence[float], told: Callable[[float], str]) -> str:
    """The median, and the range where there is one."""
    if len(values) < 2:
        return told(values[0])
    return f"{told(median(values))} ({told(min(values))} to {told(max(values))})"
