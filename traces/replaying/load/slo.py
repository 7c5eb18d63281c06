"""Service level objectives of a request: the limits that it must keep, and which requests do.

docs/load.md defines them for users. A request attains its objectives if it keeps every limit that
was given. Goodput counts the requests that do. Does not measure (see run).

    ttft    time to first token
    tpot    time per output token after the first, the mean of the request; kept by a request with
            one output token, which has none
    itl     the 99th percentile of the times between two tokens of the request, likewise
    e2e     from arrival to the last token
"""

from __future__ import annotations

from typing import NamedTuple

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))


class Slo(NamedTuple):
    """Limits in nanoseconds; None where there is no limit. The names are those of the module."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None
    itl_ns: int | None = None
    e2e_ns: int | None = None

    def __str__(self) -> str:
        return ",".join(f"{name}={spelled(limit)}" for name, limit in self.limits)

    @property
    def limits(self) -> list[tuple[str, int]]:
        """The limits that were given, by name."""
        return [
            (field.removesuffix("_ns"), limit)
            for field, limit in self._asdict().items()
            if limit is not None
        ]


NAMES = tuple(field.removesuffix("_ns") for field in Slo._fields)


def spelled(time_ns: int) -> str:
    """A time with the largest unit of which it is a whole number: 50ms."""
    unit, size = next(pair for pair in _UNITS if not time_ns % pair[1])
    return f"{time_ns // size}{unit}"
