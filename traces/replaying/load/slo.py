"""Service level objectives of a request: the limits that it must keep, and which requests do.

docs/load.md defines them for users. A request attains its objectives if it keeps every limit that
was given. Goodput counts the requests that do. Does not measure (see run).

    ttft    time to first token
    tpot    time per output token after the first, the mean of the request
    itl     the 99th percentile of the times between two tokens of the request
    e2e     from arrival to the last token

A request with one output token has neither tpot nor itl, and keeps both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))

Times = NDArray[np.int64]
Kept = NDArray[np.bool_]


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


@dataclass(frozen=True, slots=True)
class Served:
    """What the limits are about, of each finished request. ttft_ns: to its first token; decode_ns:
    from there to its last one. output_tokens: at least 1. slower: how many of the times between its
    tokens are longer than a limit."""

    ttft_ns: Times
    decode_ns: Times
    output_tokens: Times
    slower: Callable[[int], Times]


def kept(slo: Slo, served: Served) -> dict[str, Kept]:
    """Whether each request keeps each limit, by the name of the limit. Exact: no division."""
    gaps = served.output_tokens - 1
    found = {}
    for name, limit in slo.limits:
        if name == "ttft":
            found[name] = served.ttft_ns <= limit
        elif name == "tpot":
            found[name] = served.decode_ns <= limit * gaps
        elif name == "itl":  # the nearest rank: at most one gap in a hundred is longer
            found[name] = served.slower(limit) <= gaps // 100
        else:
            found[name] = served.ttft_ns + served.decode_ns <= limit
    return found


def spelled(time_ns: int) -> str:
    """A time with the largest unit of which it is a whole number: 50ms."""
    unit, size = next(pair for pair in _UNITS if not time_ns % pair[1])
    return f"{time_ns // size}{unit}"
