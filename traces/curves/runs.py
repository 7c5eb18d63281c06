"""The reuses of a trace in bulk: runs of pages that one request used last, and another uses now.

Every request uses a path of the tree from the root on. So no page was used last before a page
behind it was, and the pages of a path that one earlier request used last are neighbours: a run. A
trace has few runs for each request, however small its pages are, and the curves need work for each
run and not for each page.

    path of request 7    page   0  1  2 | 3  4 | 5  6  7
                         last   6  6  6 | 2  2 | none (new pages)
    its runs             (last 6, depth 0, 3 pages), (last 2, depth 3, 2 pages)

The trace is taken in batches: memory is needed for one batch, four bytes for each page, and the
runs. Requests are numbered by their place in the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..formats.base import Paged

BATCH_USES = 1 << 18

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

    def only(self, which: NDArray[np.bool_]) -> Runs:
        return Runs(self.last[which], self.request[which], self.depth[which], self.pages[which])

    def __len__(self) -> int:
        return len(self.last)


@dataclass(frozen=True, slots=True)
class Batch:
    """The runs of consecutive requests. first: the first of them. lengths: pages of each path."""

    first: int
    lengths: Column
    runs: Runs


class Reuses:
    """Reads a trace once. `batches` may be called once; `unique` and `largest` are known then.

    unique: different pages. largest: pages of the largest request, its known output included.
    """

    def __init__(self, trace: Paged) -> None:
        self.unique = 0
        self.largest = 0
        self._trace = trace
        # by page, the request that used it last, counted from 1; 0 if none did
        self._last = np.zeros(1 << 12, dtype=np.int32)

    def batches(self) -> Iterator[Batch]:
        first, count = 0, 0
        paths: list[Column] = []
        for job in self._trace.jobs:
            path = self._trace.chain(job)
            paths.append(path)
            count += len(path)
            if count >= BATCH_USES:
                yield self._batch(first, paths)
                first, count, paths = first + len(paths), 0, []
        if paths:
            yield self._batch(first, paths)

    def _batch(self, first: int, paths: list[Column]) -> Batch:
        lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
        self.largest = max(self.largest, int(lengths.max()))
        return Batch(first, lengths, self._runs(first, np.concatenate(paths), lengths))

    def _runs(self, first: int, flat: Column, lengths: Column) -> Runs:
        if not len(flat):
            return Runs(*(np.empty(0, dtype=np.int64) for _ in range(4)))
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(first, first + len(lengths), dtype=np.int32), lengths)
        self._reserve(int(flat.max()) + 1)
        last = self._last[flat] - 1
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        same = ordered[1:] == ordered[:-1]
        last[order[1:][same]] = owner[order[:-1][same]]
        self._last[flat] = owner + 1  # of several uses of a page, the last one stays
        self.unique += int(np.count_nonzero(last < 0))
        begins = np.ones(len(flat), dtype=np.bool_)
        np.not_equal(last[1:], last[:-1], out=begins[1:])
        begins[starts[lengths > 0]] = True
        at = np.flatnonzero(begins)
        pages = np.diff(at, append=len(flat))
        known = last[at] >= 0
        at, pages = at[known], pages[known]
        request = owner[at].astype(np.int64)
        depth = at - starts[request - first]
        return Runs(last[at].astype(np.int64), request, depth, pages)

    def _reserve(self, pages: int) -> None:
        known = len(self._last)
        if pages > known:
            self._last.resize(max(pages, known + known // 8), refcheck=False)  # not copied


def identified_tokens(trace: Paged) -> Column:
    """Prompt tokens of each request in pages that the trace identifies: those that may hit."""
    pages = trace.prompt_pages[trace.jobs.numbers]
    return np.minimum(trace.jobs.input_lengths.astype(np.int64), pages * trace.page_size)
