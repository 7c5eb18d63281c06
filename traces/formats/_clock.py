"""Times as a log of any service has them: numbers in some unit, or dates (ISO 8601).

A number since 1970 tells its unit by its size, since the units are a factor of 1,000 apart. A log
whose times are not all of one kind is refused. Does not know which column has the time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NoReturn

from . import base
from .base import Lines

UNITS = {"s": base.NS_PER_S, "ms": base.NS_PER_MS, "us": 1000, "ns": 1}
_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_MOST_NS = base.MAX_TIME_MS * base.NS_PER_MS
_SINCE_1970_NS = 10**17  # from 1973 on
_DATES = "from 1970 to 2109"
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


class Clock:
    """Reads the times of one log. column: its name, for errors. unit: one of UNITS, or empty for
    what the values say."""

    def __init__(self, column: str, unit: str = "") -> None:
        self._column = column
        self._unit = unit
        self._kind = ""

    def ns(self, lines: Lines, value: Any) -> int:
        """Nanoseconds since 1970, or since the start of the log. Raises CallerError with the
        row."""
        kind, time_ns = self._read(lines, value)
        if kind != (self._kind or kind):
            lines.wrong(
                f"{self._column}: {self._kind}, as before",
                f"{shown(value)} ({kind})",
                "write all times in one unit",
            )
        self._kind = kind
        return time_ns

    def _read(self, lines: Lines, value: Any) -> tuple[str, int]:
        text = "" if value is None or isinstance(value, bool) else str(value).strip()
        if len(text) <= base.MOST_NAME and _NUMBER.fullmatch(text):
            return self._number(lines, Decimal(text), value)
        try:
            time_ns = moment_ns(text)
        except ValueError:
            expected = "a number, or a date with time such as 2026-11-23T18:17:03.25Z"
            self._wrong(lines, f"{expected}, {_DATES}", value, "correct the row")
        if self._unit:
            do = f"leave out the unit of time={self._column}:{self._unit}"
            self._wrong(lines, _WORDS[self._unit], value, do)
        date = _DATE.fullmatch(text)
        zone = "with" if date is not None and date[4] else "without"
        return f"dates {zone} a zone", time_ns

    def _number(self, lines: Lines, number: Decimal, value: Any) -> tuple[str, int]:
        unit = self._unit or next(
            (one for one in UNITS if _SINCE_1970_NS <= number * UNITS[one] <= _MOST_NS), ""
        )
        if not unit:
            expected = "a date, or a number since 1970, which tells its unit"
            self._wrong(lines, expected, value, f"give the unit, such as time={self._column}:s")
        if number * UNITS[unit] > _MOST_NS:
            most = _MOST_NS // UNITS[unit]
            self._wrong(lines, f"{_WORDS[unit]} from 0 to {most}", value, "give another unit")
        time_ns = int(number * UNITS[unit])
        start = "1970" if time_ns >= _SINCE_1970_NS else "a start"
        return f"{_WORDS[unit]} since {start}", time_ns

    def _wrong(self, lines: Lines, expected: str, value: Any, do: str) -> NoReturn:
        lines.wrong(f"{self._column}: {expected}", shown(value), do)


def shown(value: Any) -> str:
    """A value of a table for a message."""
    if value is None or value == "":
        return "nothing"
    if isinstance(value, str):
        return base.shorten(value)
    if isinstance(value, bool | int | float | list | dict):
        return base.show(value)
    return base.shorten(str(value))
