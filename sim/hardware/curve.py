"""A measured copy time: times at several sizes, and interpolation between them.

Lives here: the points, their interpolation and their range. Does not measure (see the command line)
and does not model two directions on one wire (see device/link).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from hicache.core.errors import CallerError


@dataclass(frozen=True, slots=True)
class Curve:
    """points: (bytes, ns) of a copy without other traffic; at least two, with ascending bytes."""

    points: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if len(self.points) < 2 or any(one[0] >= two[0] for one, two in pairwise(self.points)):
            raise CallerError("curve: expected two points or more with ascending bytes, found less")
        if self.points[0][0] < 1 or min(ns for _, ns in self.points) < 1:
            raise CallerError("curve: expected bytes and times above 0, found others")

    def ns(self, count: int) -> int:
        """Nanoseconds of a copy of `count` bytes: linear between the points, at least 1 ns.

        Above the last point the time is proportional to the size. Below the first point it falls on
        a straight line to half the first time at size 0.
        """
        first, last = self.points[0], self.points[-1]
        if count <= first[0]:
            return max(1, first[1] - first[1] * (first[0] - count) // (2 * first[0]))
        if count >= last[0]:
            return last[1] * count // last[0]
        at = bisect_right(self.points, (count, 1 << 62))
        (low, low_ns), (high, high_ns) = self.points[at - 1], self.points[at]
        return max(1, low_ns + (high_ns - low_ns) * (count - low) // (high - low))

    def covers(self, count: int) -> bool:
        """Whether this size lies in the measured range."""
        return self.points[0][0] <= count <= self.points[-1][0]
