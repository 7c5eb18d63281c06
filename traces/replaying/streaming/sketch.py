"""The distribution of very many times in bounded memory.

Up to `EXACT` times are kept, and the percentiles are those of the times themselves. Beyond that,
times are counted in buckets of 1/1,024 of their size, and a percentile is the middle of its bucket:
at most 0.05 % off. The mean is always exact.

    bucket of a time with n bits above 11   n - 11 bits are cut off: 1,024 buckets for each n
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from ...results.record import PERCENTS, Spread
from ..run import NS_PER_S, spread_of_counted

EXACT = 1 << 17
_BITS = 10  # of a time that tell its bucket, below the first one
_MOST_BITS = 53
_BUCKETS = (_MOST_BITS - _BITS + 1) << _BITS

Times = NDArray[np.int64]


class Sketch:
    """See the module. Times are in nanoseconds, 0 or more."""

    def __init__(self, exact: int = 0) -> None:
        self._exact = exact or EXACT
        self._times = array("q")
        self._weights = array("q")
        self._counts: Times | None = None
        self._total = self._sum = 0

    @property
    def is_exact(self) -> bool:
        return self._counts is None

    def add(self, time_ns: int) -> None:
        self._times.append(time_ns)
        self._weights.append(1)
        if len(self._times) >= self._exact:
            self._count()

    def add_all(self, times: Times, weights: Times) -> None:
        """Each of the times so often."""
        self._times.frombytes(times.astype(np.int64).tobytes())
        self._weights.frombytes(weights.astype(np.int64).tobytes())
        if len(self._times) >= self._exact:
            self._count()

    def spread(self) -> Spread:
        if self._counts is None:
            times = np.array(self._times, dtype=np.int64)
            return spread_of_counted(times, np.array(self._weights, dtype=np.int64))
        counts = self._count()
        up_to = np.cumsum(counts)
        ranks = [-(-percent * self._total // 100) for percent in PERCENTS]
        points = _middles(np.searchsorted(up_to, ranks))
        return Spread(self._sum / self._total / NS_PER_S, *(points / NS_PER_S).tolist())

    def _count(self) -> Times:
        """Puts the times that are kept into their buckets."""
        if self._counts is None:
            self._counts = np.zeros(_BUCKETS, dtype=np.int64)
        times = np.array(self._times, dtype=np.int64)
        weights = np.array(self._weights, dtype=np.int64)
        del self._times[:], self._weights[:]
        self._sum += int(np.dot(times, weights))
        self._total += int(weights.sum())
        np.add.at(self._counts, _buckets(times), weights)
        return self._counts


def _buckets(times: Times) -> Times:
    cut = np.maximum(np.frexp(times.astype(np.float64))[1] - _BITS - 1, 0).astype(np.int64)
    found: Times = np.minimum((cut << _BITS) + (times >> cut), _BUCKETS - 1)
    return found


def _middles(buckets: NDArray[np.int64]) -> NDArray[np.float64]:
    """A time in the middle of each bucket."""
    cut = np.maximum((buckets >> _BITS) - 1, 0)
    low = (buckets - (cut << _BITS)) << cut
    found: NDArray[np.float64] = low + ((1 << cut) - 1) / 2
    return found
