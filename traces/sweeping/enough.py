"""The size of host memory that is enough: it brings nine tenths of what host memory could add.

What it could add is the distance from the hits of the device to the ceiling of the trace, so that
the answer does not depend on the sizes that were tried. Only where the hits stop growing short of
that, the best hits take the place of the ceiling. Between two sizes the hits are taken to grow with
the logarithm of the size, and linearly from no host memory to the first size. Does not word the
answer; see words.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2, log10

from .points import Point

ENOUGH = 0.9  # of what host memory could add
LITTLE = 0.005  # of the prompt tokens
_DIGITS = 2  # of a size that was interpolated


def recommended(points: Sequence[Point]) -> int | None:
    """Bytes, to two digits; None if the sizes do not show it. points: in order of size.

    It is the smallest size that was tried if already that one is enough.
    """
    if len(points) < 2 or max(point.hit_rate for point in points) - base_rate(points) < LITTLE:
        return None
    place = first_enough(points)
    if place is None:
        return None
    upper = points[place]
    if not place:
        return upper.host_bytes
    lower = points[place - 1]
    part = (wanted_rate(points) - lower.hit_rate) / (upper.hit_rate - lower.hit_rate)
    if lower.host_bytes:
        size = lower.host_bytes * (upper.host_bytes / lower.host_bytes) ** part
    else:
        size = upper.host_bytes * part
    return round(size, _DIGITS - 1 - floor(log10(size))) if size >= 1 else 1


def first_enough(points: Sequence[Point]) -> int | None:
    """The place of the smallest size tried that is enough."""
    wanted = wanted_rate(points)
    return next((at for at, point in enumerate(points) if point.hit_rate >= wanted), None)


def wanted_rate(points: Sequence[Point]) -> float:
    """The hit rate that is enough."""
    base, best = base_rate(points), max(point.hit_rate for point in points)
    wanted = base + ENOUGH * (points[-1].ceiling_rate - base)
    if best < wanted and not still_grows(points):
        return base + ENOUGH * (best - base)
    return wanted


def base_rate(points: Sequence[Point]) -> float:
    """The hit rate without host memory; hits of the device do not depend on the host."""
    first = points[0]
    return first.device_hit_rate if first.host_bytes else first.hit_rate


def still_grows(points: Sequence[Point]) -> bool:
    """Whether twice the largest size would add more than a little, judged by the last step."""
    before, last = points[-2:]
    doublings = log2(last.host_bytes / before.host_bytes) if before.host_bytes else 1.0
    return last.hit_rate - before.hit_rate >= LITTLE * doublings
