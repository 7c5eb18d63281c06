"""The exact LRU curve of a trace: hits at every capacity at once, from reuse distances.

A page hits in an LRU cache of C pages if fewer than C other pages were used since its last use
(Mattson, Gecsei, Slutz, Traiger, 1970). A request uses its pages from the last to the first, so a
page is never colder than a page after it, and the hits are always the leading pages. With p the
page's last use, and t the start of the request:

    distance = (t - p - 1) - #{uses j < t after p of pages last used after p, too}
             = (t - p - 1) - #{j before this use: last(j) > last(this use)}

The second line counts inversions of `last`. Uses of the same request add none, because a page after
another one was never used later. Inversions are counted by merging sorted halves, in n log n.

The trace is taken in batches, so that memory is needed for one batch, for the pages, and for the
distances that are the result. Before a batch, all earlier uses are replaced by the order in which
the pages were used last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hicache.core.types import NO_PAGES, Pages

from ..formats.base import Paged
from .account import prompt_tokens

_BATCH_USES = 1 << 18
_WORTH_BITS = 25  # tokens of a page, at most 2**24 (formats/base)
_WORTH = (1 << _WORTH_BITS) - 1
_ROW = 16


@dataclass(frozen=True, slots=True)
class Curve:
    """Hits as a function of the capacity.

    distances: sorted reuse distances, in pages, of prompt pages that were used before. tokens:
    int64, one element more; element i is the prompt tokens of the first i pages. unique: different
    pages of the trace. largest: pages of the largest request.
    """

    distances: Pages
    tokens: Pages
    unique: int
    largest: int

    def hit_tokens(self, capacity: int) -> int:
        """Prompt tokens that hit in an LRU cache of `capacity` pages."""
        return int(self.tokens[np.searchsorted(self.distances, capacity, side="left")])


def lru_curve(trace: Paged, first: int = 0) -> Curve:
    """The curve of requests with index >= first, in a cache that served all earlier ones."""
    jobs, size = trace.jobs, trace.page_size
    most = -(-(jobs.input_lengths + jobs.output_lengths) // size)
    total = int(most.sum(dtype=np.int64))
    uses, found = _Uses(total), _Found(total)
    batch = _Batch(_BATCH_USES + int(most.max(initial=0)))
    largest = 0
    for job in jobs:
        chain = trace.chain(job)
        batch.add(chain[::-1], prompt_tokens(job, trace) if job.index >= first else 0, size)
        largest = max(largest, len(chain))
        if batch.count >= _BATCH_USES:
            found.add(batch.reused(uses))
    found.add(batch.reused(uses))
    unique = uses.unique
    del uses, batch
    reused = found.all
    reused.sort()
    tokens_of = np.zeros(len(reused) + 1, dtype=np.int64)
    np.cumsum(reused & _WORTH, out=tokens_of[1:])
    reused >>= _WORTH_BITS
    return Curve(reused, tokens_of, unique, largest)


class _Batch:
    """The uses of some requests in a row. room: for how many uses."""

    def __init__(self, room: int) -> None:
        self.count = 0
        self._pages = np.empty(room, dtype=np.int64)
        self._starts = np.empty(room, dtype=np.int64)
        self._worths = np.empty(room, dtype=np.int64)

    def add(self, pages: Pages, tokens: int, page_size: int) -> None:
        """The uses of a request. tokens: those that count as hits, at the end of `pages`."""
        start, end = self.count, self.count + len(pages)
        self._pages[start:end] = pages
        self._starts[start:end] = start
        self._worths[start:end] = 0
        if tokens:
            whole = -(-tokens // page_size) - 1
            self._worths[end - whole : end] = page_size
            self._worths[end - whole - 1] = tokens - whole * page_size
        self.count = end

    def reused(self, uses: _Uses) -> Pages:
        """The uses of known pages that are worth tokens: distance << _WORTH_BITS | tokens.

        Empties the batch.
        """
        count, self.count = self.count, 0
        if not count:
            return NO_PAGES
        worth = self._worths[:count]
        distance = uses.distances(self._pages[:count], self._starts[:count])
        counted = (distance >= 0) & (worth > 0)
        return distance[counted] << _WORTH_BITS | worth[counted]


class _Found:
    """The distances so far, in one array: the system gives memory where it was written. most: of
    the whole trace."""

    def __init__(self, most: int) -> None:
        self._count = 0
        self._all = np.empty(most, dtype=np.int64)

    def add(self, reused: Pages) -> None:
        end = self._count + len(reused)
        self._all[self._count : end] = reused
        self._count = end

    @property
    def all(self) -> Pages:
        return self._all[: self._count]


class _Uses:
    """All uses so far: where each page was used last, and which uses are the last of their page.

    A byte a use and four a page. most: uses of the whole trace.
    """

    def __init__(self, most: int) -> None:
        self.unique = 0
        self._count = 0
        self._type = np.dtype(np.int32 if most < 1 << 31 else np.int64)
        # by page, the position after its last use; the system gives memory where it is not 0
        self._after: NDArray[np.signedinteger[Any]] = np.zeros(1 << 12, dtype=self._type)
        self._is_last = np.zeros((-(-most // _ROW), _ROW), dtype=np.uint8)

    def distances(self, pages: Pages, starts: Pages) -> Pages:
        """The reuse distance of each use; -1 for a first use. starts: see `lru_curve`.

        Positions of the formula count from the first of these uses. Earlier ones are -1 for the
        warmest page, -2 for the next one, and so on: only their order counts.
        """
        self._reserve(int(pages.max()) + 1)
        before = self._after[pages] - 1
        last = _last_use(pages)
        outside = last < 0
        known = outside & (before >= 0)
        new = outside & (before < 0)
        last[known] = -1 - self._warmer(before[known])
        last[new] = -1 - self.unique
        distance = starts - 1 - last - _larger_before(last + 1 + self.unique)
        distance[new] = -1
        flat, end = self._is_last.reshape(-1), self._count + len(pages)
        flat[before[known]] = 0
        flat[self._count : end] = 1
        flat[self._count + last[~outside]] = 0
        self._after[pages] = np.arange(self._count + 1, end + 1, dtype=self._type)
        self._count = end
        self.unique += int(new.sum())
        return distance

    def _reserve(self, pages: int) -> None:
        known = self._after
        if pages > len(known):
            self._after = np.zeros(max(pages, 2 * len(known)), dtype=self._type)
            self._after[: len(known)] = known

    def _warmer(self, positions: NDArray[np.signedinteger[Any]]) -> Pages:
        """How many pages were last used after each of these positions."""
        rows = self._is_last[: -(-self._count // _ROW)]
        upto = np.cumsum(rows.sum(axis=1, dtype=np.int64))
        row, place = positions // _ROW, positions % _ROW
        after = (rows[row] * (np.arange(_ROW) > place[:, None])).sum(axis=1, dtype=np.int64)
        warmer: Pages = self.unique - upto[row] + after
        return warmer


def _last_use(flat: Pages) -> Pages:
    """For each use, the position of the previous use of the same page; -1 for a first use."""
    order = np.argsort(flat, kind="stable")
    same = flat[order[1:]] == flat[order[:-1]]
    last = np.full(len(flat), -1, dtype=np.int64)
    last[order[1:][same]] = order[:-1][same]
    return last


def _larger_before(values: Pages) -> Pages:
    """For each position, how many earlier values are larger than its value."""
    count = len(values)
    width = 1
    total = 1 << max(count - 1, 0).bit_length()
    top = int(values.max(initial=0)) + 3
    padded = np.full(total, top - 1, dtype=np.int64)
    padded[:count] = values + 1
    larger = np.zeros(total, dtype=np.int64)
    while width < total:
        rows = padded.reshape(-1, 2, width)
        # each row has an offset of its own, so one search serves all rows
        offset = np.arange(len(rows), dtype=np.int64)[:, None] * top
        left = (np.sort(rows[:, 0], axis=1) + offset).ravel()
        right = (rows[:, 1] + offset).ravel()
        not_larger = np.searchsorted(left, right, side="right").reshape(-1, width)
        not_larger -= np.arange(len(rows), dtype=np.int64)[:, None] * width
        larger.reshape(-1, 2, width)[:, 1] += width - not_larger
        width *= 2
    return larger[:count]
