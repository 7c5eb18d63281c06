"""The exact LRU curve of a trace: hits at every capacity at once, from stack distances.

A page hits in an LRU cache of C pages if fewer than C other pages were used since its last use
(Mattson, Gecsei, Slutz, Traiger, 1970). A request uses its pages from the last to the first, so a
page is never colder than a page behind it, and the hits are always the leading pages. A request
hits what the cache has when it comes: its own pages push none of its own out.

The distances of a run (see runs) follow from one number. With p the request that used the run last,
r the one that uses it now, d the depth of the run and i the place of a page in it:

    distance(i) = D + i       D = pages that were last used between p and r
                                = pages of the paths between p and r
                                  - pages of the runs between p and r whose last use is after p, too

The runs whose last use is after p are inversions of the column `last`, weighted by their pages. The
runs of r before this one are inversions as well, d pages. Inversions are counted by merging sorted
halves, in n log n for n runs.

Hits of two tiers, a device of fixed size and a host of many sizes, follow from the same curve:

    inclusive    every page is written to the host at once, and a use touches it on both tiers
                 device + host hit what LRU hits with the larger of both
    exclusive    a page is on one tier, and leaves the device for the host
                 device + host hit what LRU hits with both together

The device hits what LRU hits with the device alone, either way (LRU includes all smaller LRUs).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..formats.base import Paged
from .runs import Batch, Column, Reuses, Runs, identified_tokens

_BLOCK = 1 << 11  # requests


@dataclass(frozen=True, slots=True)
class Curve:
    """LRU hits as a function of the capacity, and what the optimum needs, too.

    runs: those that may hit: of counted requests, without pages behind the prompt. distance: D of
    each run. short: tokens that the last page of a run lacks, where the prompt ends in it. unique:
    different pages of the trace. largest: pages of the largest request. first: requests before it
    are not counted.
    """

    page_size: int
    first: int
    unique: int
    largest: int
    runs: Runs
    distance: Column
    short: Column

    def hit_tokens(self, capacity: int) -> int:
        """Prompt tokens that hit in an LRU cache of `capacity` pages."""
        return int(self.tokens_at(np.array([capacity]))[0])

    def pages_for(self, tokens: float | Fraction) -> int:
        """The smallest LRU cache that hits so many prompt tokens; 0 if none does."""
        low, high = 0, self.unique + 1
        while low < high:
            middle = (low + high) // 2
            if self.hit_tokens(middle) >= tokens:
                high = middle
            else:
                low = middle + 1
        return low if low <= self.unique else 0

    def tokens_at(self, capacities: Column) -> Column:
        """The same for many capacities."""
        ends = self.distance + self.runs.pages
        partial = self.short > 0
        tokens: Column = self.page_size * (
            _ramps(self.distance, capacities) - _ramps(ends, capacities)
        ) - _steps(ends[partial], self.short[partial], capacities)
        return tokens

    @property
    def working_set(self) -> int:
        """The least capacity in pages with which LRU hits all that any cache can."""
        return int((self.distance + self.runs.pages).max(initial=0))

    @property
    def unbounded(self) -> int:
        """Tokens that a cache without limit hits."""
        return int(self.runs.pages.sum()) * self.page_size - int(self.short.sum())

    def bends(self) -> Column:
        """The capacities between which the curve is a straight line, ascending."""
        ends = self.distance + self.runs.pages
        last = ends[self.short > 0] - 1
        return np.unique(np.concatenate((self.distance, ends, last)))

    def only(self, which: NDArray[np.bool_]) -> Curve:
        """The curve of some runs."""
        return replace(
            self,
            runs=self.runs.only(which),
            distance=self.distance[which],
            short=self.short[which],
        )


@dataclass(frozen=True, slots=True)
class Tiers:
    """One element for each host size."""

    device_tokens: Column
    host_tokens: Column

    def document(self, host_pages: Column) -> dict[str, object]:
        return {
            "host_pages": host_pages.tolist(),
            "device_hit_tokens": self.device_tokens.tolist(),
            "host_hit_tokens": self.host_tokens.tolist(),
        }


def inclusive(curve: Curve, device_pages: int, host_pages: Column) -> Tiers:
    return _tiers(curve, device_pages, np.maximum(host_pages, device_pages))


def exclusive(curve: Curve, device_pages: int, host_pages: Column) -> Tiers:
    return _tiers(curve, device_pages, host_pages + device_pages)


def _tiers(curve: Curve, device_pages: int, together: Column) -> Tiers:
    device = np.full(len(together), curve.hit_tokens(device_pages), dtype=np.int64)
    return Tiers(device, curve.tokens_at(together) - device)


def lru_curve(
    trace: Paged, first: int = 0, shown: Callable[[int], None] = lambda done: None
) -> Curve:
    """The curve of requests from place `first` on, in a cache that served all earlier ones. shown:
    is called with the number of requests done so far."""
    reuses = Reuses(trace)
    tokens = identified_tokens(trace)
    behind = _Behind(len(tokens))
    found = [array("q") for _ in range(6)]  # each grows in place
    for batch in reuses.batches():
        distance = behind.distances(batch)
        columns = _counted(batch.runs, distance, tokens, trace.page_size, first)
        for grown, column in zip(found, columns, strict=True):
            grown.frombytes(column.tobytes())
        shown(batch.first + len(batch.lengths))
    last, request, depth, pages, distance, short = map(np.asarray, found)
    return Curve(
        trace.page_size,
        first,
        reuses.unique,
        reuses.largest,
        Runs(last, request, depth, pages),
        distance,
        short,
    )


def _counted(
    runs: Runs, distance: Column, tokens: Column, page_size: int, first: int
) -> tuple[Column, ...]:
    """The columns of the runs that are worth tokens; pages behind the prompt are left out."""
    worth = tokens[runs.request] - runs.depth * page_size
    pages = np.minimum(runs.pages, -(-worth // page_size))
    short = np.maximum(pages * page_size - worth, 0)
    which = (pages > 0) & (runs.request >= first)
    columns = (runs.last, runs.request, runs.depth, pages, distance, short)
    return tuple(column[which] for column in columns)


class _Behind:
    """How many pages were last used by each request so far, and by each block of requests, so that
    the work of a batch does not grow with the trace. requests: of the whole trace."""

    def __init__(self, requests: int) -> None:
        blocks = requests // _BLOCK + 1
        self._pages = np.zeros(blocks * _BLOCK, dtype=np.int32)
        self._of_blocks = np.zeros(blocks + 1, dtype=np.int64)

    def distances(self, batch: Batch) -> Column:
        """D of each run of the next batch."""
        runs, first = batch.runs, batch.first
        end = first + len(batch.lengths)
        before = np.concatenate(([0], np.cumsum(batch.lengths)))
        between = before[runs.request - first]
        inside = runs.last >= first
        between[inside] -= before[runs.last[inside] + 1 - first]
        between[~inside] += self._from(runs.last[~inside] + 1)
        self._pages[first:end] = batch.lengths
        np.subtract.at(self._pages, runs.last, runs.pages)
        np.add.at(self._of_blocks, np.arange(first, end) // _BLOCK, batch.lengths)
        np.subtract.at(self._of_blocks, runs.last // _BLOCK, runs.pages)
        distances: Column = between - larger_before(runs.last, runs.pages) + runs.depth
        return distances

    def _from(self, requests: Column) -> Column:
        """How many pages were last used by each of these requests or after it."""
        blocks, which = np.unique(requests // _BLOCK, return_inverse=True)
        within = self._pages.reshape(-1, _BLOCK)[blocks, ::-1].cumsum(axis=1, dtype=np.int64)
        behind = self._of_blocks[::-1].cumsum()[::-1]
        pages: Column = within[which, -1 - requests % _BLOCK] + behind[blocks + 1][which]
        return pages


def larger_before(values: Column, weights: Column) -> Column:
    """For each position, the weight of the earlier positions with larger values."""
    count = len(values)
    total = 1 << max(count - 1, 0).bit_length()
    top = int(values.max(initial=0)) + 3
    padded = np.full(total, top - 1, dtype=np.int64)
    padded[:count] = values + 1
    weight = np.zeros(total, dtype=np.int64)
    weight[:count] = weights
    larger = np.zeros(total, dtype=np.int64)
    width = 1
    while width < total:
        rows = padded.reshape(-1, 2, width)
        # each row has an offset of its own, so one search serves all rows
        offset = np.arange(len(rows), dtype=np.int64)[:, None] * top
        order = np.argsort(rows[:, 0], axis=1, kind="stable")
        left = (np.take_along_axis(rows[:, 0], order, axis=1) + offset).ravel()
        weighed = np.take_along_axis(weight.reshape(-1, 2, width)[:, 0], order, axis=1)
        upto = np.concatenate(([0], np.cumsum(weighed)))
        place = np.searchsorted(left, (rows[:, 1] + offset).ravel(), side="right")
        ends = np.arange(1, len(rows) + 1, dtype=np.int64)[:, None] * width
        more = upto[ends] - upto[place].reshape(-1, width)
        larger.reshape(-1, 2, width)[:, 1] += more
        width *= 2
    return larger[:count]


def _ramps(starts: Column, at: Column) -> Column:
    """The sum over all starts of max(0, at - start), for each `at`."""
    ordered = np.sort(starts)
    upto = np.concatenate(([0], np.cumsum(ordered)))
    count = np.searchsorted(ordered, at, side="left")
    ramps: Column = count * at - upto[count]
    return ramps


def _steps(starts: Column, heights: Column, at: Column) -> Column:
    """The sum of the heights whose start is at most `at`, for each `at`."""
    order = np.argsort(starts, kind="stable")
    upto = np.concatenate(([0], np.cumsum(heights[order])))
    steps: Column = upto[np.searchsorted(starts[order], at, side="right")]
    return steps
