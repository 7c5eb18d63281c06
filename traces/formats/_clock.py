"""Times as a log of any service has them: numbers in some unit, or dates (ISO 8601).

A number since 1970 tells its unit by its size, since the units are a factor of 1,000 apart. A log
whose times are not all of one kind is refused.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import NoReturn

from . import base
from .base import Lines

UNITS = {"s": base.NS_PER_S, "ms": base.NS_PER_MS, "us": 1000, "ns": 1}
_MOST_NS = base.MAX_TIME_MS * base.NS_PER_MS
_SINCE_1970_NS = 10**17  # from 1973 on
_NUMBER = re.compile(r"\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?: ?(Z|UTC|[+-]\d\d(?::?\d\d)?))?",
    re.ASCII,
)


def moment_ns(text: str) -> int:
    """A date with time, as nanoseconds since 1970. Without a zone it is taken for UTC. Raises
    ValueError for anything else, and outside 1970 to 2109."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError
    day, time, fraction, zone = found.groups()
    zone = "+00:00" if zone in (None, "Z", "UTC") else zone
    moment = datetime.fromisoformat(f"{day}T{time}{zone}")
    whole = round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    if not 0 <= whole < base.MAX_TIME_MS // 1000:
        raise ValueError
    return whole * base.NS_PER_S + int((fraction or "").ljust(9, "0"))


def duration_ns(text: str, unit: str) -> int:
    """A number in this unit. Raises ValueError for anything else."""
    if not _NUMBER.fullmatch(text) or Decimal(text) * UNITS[unit] > _MOST_NS:
        raise ValueError
    return int(Decimal(text) * UNITS[unit])


class Clock:
    """Reads the times of one log. column: its name, for errors. unit: one of UNITS, or empty for
    what the values say."""

    def __init__(self, column: str, unit: str = "") -> None:
        self._column = column
        self._unit = unit
        self._kind = ""

    def ns(self, lines: Lines, text: str) -> int:
        """Nanoseconds since 1970, or since the start of the log. Raises CallerError with the
        row."""
        kind, time_ns = self._read(lines, text.strip())
        if kind != (self._kind or kind):
            found = f"{base.show(text)} ({kind})"
            self._wrong(lines, f"{self._kind}, as before", found, "write all times in one unit")
        self._kind = kind
        return time_ns

    def _read(self, lines: Lines, text: str) -> tuple[str, int]:
        if len(text) <= base.MOST_NAME and _NUMBER.fullmatch(text):
            number = Decimal(text)
            fits = (one for one in UNITS if _SINCE_1970_NS <= number * UNITS[one] <= _MOST_NS)
            unit = self._unit or next(fits, "")
            if not unit or number * UNITS[unit] > _MOST_NS:
                do = f"give the unit, such as time={self._column}:s"
                self._wrong(lines, "a date, or a number since 1970", base.show(text), do)
            time_ns = int(number * UNITS[unit])
            return f"{unit} since {'1970' if time_ns >= _SINCE_1970_NS else 'a start'}", time_ns
        try:
            time_ns = moment_ns(text)
        except ValueError:
            expected = "a number, or a date with time such as 2026-11-23T18:17:03.25Z"
            self._wrong(lines, expected, base.show(text), "correct the row")
        if self._unit:
            self._wrong(lines, f"a number of {self._unit}", base.show(text), "leave the unit out")
        date = _DATE.fullmatch(text)
        return f"dates {'with' if date is not None and date[4] else 'without'} a zone", time_ns

    def _wrong(self, lines: Lines, expected: str, found: str, do: str) -> NoReturn:
        lines.wrong(f"{self._column}: {expected}", found, do)
