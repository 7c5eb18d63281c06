"""Figures in words, as reports, sentences and options write them; what is missing is a dash."""

from collections.abc import Sequence
from decimal import Decimal

NONE = "-"
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def gigabytes(count: int) -> str:
    """`512 GB`, `1.5 TB`, or `6 MB`; with decimals below 10 GB."""
    if 0 < count < 1000:
        return f"{count} B"
    if 0 < count < 10**7:
        return f"{count / 1e6:.4g} MB"
    if count >= 10**12:
        return f"{count / 1e12:,.4g} TB"
    return f"{count / 1e9:.4g} GB"


def digits(amount: float, most: int = 3) -> str:
    """So many digits, or all before the point; never as a power of ten."""
    if abs(amount) >= 10**most:
        return f"{amount:,.0f}"
    return f"{Decimal(f'{amount:.{most}g}'):,f}"


def percent(rate: float | None, places: int = 0) -> str:
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


def short(value: float | None, unit: str = "") -> str:
    """Three digits and a decimal prefix: `1.23 M`, `512 GB`."""
    if value is None:
        return NONE
    for factor, prefix in _UNITS:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def pools_note(components: Sequence[str]) -> str:
    """What a curve leaves out of a model with these; empty for one component."""
    if len(components) < 2:
        return ""
    return f"counts the pool of {components[0]} alone, not that of {', '.join(components[1:])}"


def reason_name(reason: str) -> str:
    """What ended a hit, or what tokens were lost to."""
    plain = {"not_ready": "still being computed", "complete": "all hit"}
    return plain.get(reason, reason.replace("_", " "))
