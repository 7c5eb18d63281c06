"""The exact LRU curve of a trace: hits at every capacity at once, from stack distances.

A page hits in an LRU cache of C pages if fewer than C other pages were used since its last use
(Mattson, Gecsei, Slutz, Traiger, 1970). A request uses its pages from the last to the first, so a
page is never colder than a page behind it, and the hits are always the leading pages. A request
hits what the cache has when it comes: its own pages push none of its own out.

Every request uses a path of the tree from the root on. So the pages of a path that one earlier
request used last are neighbours, a run, and a trace has few runs for each request, however small
its pages are:

    path of request 7    page   0  1  2 | 3  4 | 5  6  7
                         last   6  6  6 | 2  2 | none (new pages)
    its runs             (last 6, depth 0, 3 pages), (last 2, depth 3, 2 pages)

With p the request that used a run last, r the one that uses it now, d the depth of the run and i
the place of a page in it:

    distance(i) = D + i       D = pages that were last used between p and r
                                = pages of the paths between p and r
                                  - pages of the runs between p and r whose last use is after p, too

The runs whose last use is after p are inversions of the column `last`, weighted by their pages; the
runs of r before this one are inversions as well, d pages. Inversions are counted by merging sorted
halves, in n log n for n runs. Requests are numbered by their place in the trace.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..formats.base import Paged

CHUNK = 1 << 18  # pages, or runs, that are looked at together

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs in columns, by request, root first within a request.

    last, request: who used the pages last, and who uses them now. depth: pages of the path before
    the run. pages: of the run.
    """

    last: Column
    request: Column
    depth: Column
    pages: Column

    def __len__(self) -> int:
        return len(self.last)


@dataclass(frozen=True, slots=True)
class Curve:
    """LRU hits as a function of the capacity, and what the optimum needs, too.

    runs: those that may hit: of counted requests, without pages behind the prompt. distance: D of
    each run. short: tokens that the last page of a run lacks, where the prompt ends in it. unique:
    different pages of the trace. largest: pages of the largest request, its known output included.
    first: requests before it are not counted.
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

    def tokens_at(self, capacities: Column) -> Column:
        """The same for many capacities."""
        ends = self.distance + self.runs.pages
        partial = self.short > 0
        tokens: Column = self.page_size * (
            _ramps(self.distance, capacities) - _ramps(ends, capacities)
        ) - _steps(ends[partial], self.short[partial], capacities)
        return tokens

    def host_tokens(self, device: int, host: Column, exclusive: bool = False) -> Column:
        """What a host adds to a device, both in pages. Inclusive: every page is written to the host
        at once, and a use touches it on both tiers, so both hit what the larger one hits.
        Exclusive: a page is on one tier, and leaves the device for the host, so both hit what their
        sum hits. The device hits what LRU hits with the device alone, either way."""
        both = host + device if exclusive else np.maximum(host, device)
        return self.tokens_at(both) - self.hit_tokens(device)

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

    @property
    def working_set(self) -> int:
        """The least capacity in pages with which LRU hits all that any cache can."""
        return int((self.distance + self.runs.pages).max(initial=0))

    @property
    def unbounded(self) -> int:
        """Tokens that a cache without limit hits."""
        return int(self.runs.pages.sum()) * self.page_size - int(self.short.sum())

    def only(self, which: NDArray[np.bool_]) -> Curve:
        """The curve of some runs."""
        runs = self.runs
        columns = (column[which] for column in (runs.last, runs.request, runs.depth, runs.pages))
        return replace(
            self, runs=Runs(*columns), distance=self.distance[which], short=self.short[which]
        )


def lru_curve(
    trace: Paged, first: int = 0, shown: Callable[[int], None] = lambda done: None
) -> Curve:
    """The curve of requests from place `first` on, in a cache that served all earlier ones. shown:
    is called with the number of requests done so far."""
    reuses = _Reuses()
    for paths in _batches(trace):
        shown(reuses.add(paths))
    runs, lengths = Runs(*map(np.asarray, reuses.columns)), np.asarray(reuses.lengths)
    distance, size = _distances(runs, lengths), trace.page_size
    worth = identified_tokens(trace)[runs.request] - runs.depth * size
    pages = np.minimum(runs.pages, -(-worth // size))
    short = np.maximum(pages * size - worth, 0)
    runs, largest = replace(runs, pages=pages), int(lengths.max(initial=0))
    curve = Curve(size, first, reuses.unique, largest, runs, distance, short)
    return curve.only((pages > 0) & (runs.request >= first))


def identified_tokens(trace: Paged) -> Column:
    """Prompt tokens of each request in pages that the trace identifies: those that may hit."""
    pages = trace.prompt_pages[trace.jobs.numbers]
    return np.minimum(trace.jobs.input_lengths.astype(np.int64), pages * trace.page_size)


def _batches(trace: Paged) -> Iterator[list[Column]]:
    """The paths of consecutive requests."""
    paths: list[Column] = []
    count = 0
    for job in trace.jobs:
        paths.append(trace.chain(job))
        count += len(paths[-1])
        if count >= CHUNK:
            yield paths
            paths, count = [], 0
    if paths:
        yield paths


class _Reuses:
    """Takes batches of paths. lengths: pages of each path so far. columns: their runs. unique:
    different pages so far."""

    def __init__(self) -> None:
        self.unique = 0
        # by page, the request that used it last, counted from 1; 0 if none did
        self._last = np.zeros(1 << 12, dtype=np.int32)
        self.lengths = array("q")
        self.columns = [array("q") for _ in range(4)]

    def add(self, paths: list[Column]) -> int:
        """Returns the number of requests so far."""
        first = len(self.lengths)
        lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
        self.lengths.frombytes(lengths.tobytes())
        flat = np.concatenate(paths)
        if not len(flat):
            return len(self.lengths)
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(first, first + len(lengths), dtype=np.int32), lengths)
        last = self._last_users(flat, owner)
        self.unique += int(np.count_nonzero(last < 0))
        begins = np.ones(len(flat), dtype=np.bool_)
        np.not_equal(last[1:], last[:-1], out=begins[1:])
        begins[starts[lengths > 0]] = True
        at = np.flatnonzero(begins)
        pages = np.diff(at, append=len(flat))
        known = last[at] >= 0
        at, pages = at[known], pages[known]
        request = owner[at].astype(np.int64)
        runs = (last[at].astype(np.int64), request, at - starts[request - first], pages)
        for kept, column in zip(self.columns, runs, strict=True):
            kept.frombytes(column.tobytes())
        return len(self.lengths)

    def _last_users(self, flat: Column, owner: NDArray[np.int32]) -> NDArray[np.int32]:
        """For each use of a page, the request that used it last; -1 for none."""
        most, known = int(flat.max()) + 1, len(self._last)
        if most > known:
            self._last.resize(max(most, known + known // 8), refcheck=False)  # not copied
        last = self._last[flat] - 1
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        same = ordered[1:] == ordered[:-1]
        last[order[1:][same]] = owner[order[:-1][same]]
        self._last[flat] = owner + 1  # of several uses of a page, the last one stays
        return last


def _distances(runs: Runs, lengths: Column) -> Column:
    """D of each run. lengths: pages of the path of each request."""
    before = np.concatenate(([0], np.cumsum(lengths)))
    distance: Column = before[runs.request] - before[runs.last + 1] + runs.depth
    earlier = np.zeros(len(lengths) + 1, dtype=np.int64)  # pages in chunks before, by `last`
    for start in range(0, len(runs), CHUNK):
        chunk = slice(start, start + CHUNK)
        last, pages = runs.last[chunk], runs.pages[chunk]
        upwards = earlier[::-1].cumsum()[::-1]
        distance[chunk] -= upwards[last + 1] + larger_before(last, pages)
        np.add.at(earlier, last, pages)
    return distance


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
        larger.reshape(-1, 2, width)[:, 1] += upto[ends] - upto[place].reshape(-1, width)
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
