"""The exact LRU curve of a trace: hits at every capacity at once, from reuse distances.

A page hits in an LRU cache of C pages if fewer than C other pages were used since its last use
(Mattson, Gecsei, Slutz, Traiger, 1970). A request uses its pages from the last to the first, so a
page is never colder than a page after it, and the hits are always the leading pages. With p the
page's last use, and t the start of the request:

    distance = (t - p - 1) - #{uses j < t after p of pages last used after p, too}
             = (t - p - 1) - #{j before this use: last(j) > last(this use)}

The second line counts inversions of `last`. Uses of the same request add none, because a page after
another one was never used later. Inversions are counted by merging sorted halves, in n log n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hicache.core.types import Pages

from ..formats.base import Paged
from .account import prompt_tokens


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
    size = trace.page_size
    uses: list[Pages] = []
    starts: list[Pages] = []
    worths: list[Pages] = []
    used = 0
    largest = 0
    for job in trace.jobs:
        chain = trace.chain(job)[::-1]
        tokens = prompt_tokens(job, trace)
        worth = np.zeros(len(chain), dtype=np.int64)
        if job.index >= first and tokens:
            pages = -(-tokens // size)
            worth[len(chain) - pages :] = size
            worth[len(chain) - pages] = tokens - (pages - 1) * size
        uses.append(chain)
        starts.append(np.full(len(chain), used, dtype=np.int64))
        worths.append(worth)
        used += len(chain)
        largest = max(largest, len(chain))
    flat, worth = np.concatenate(uses), np.concatenate(worths)
    last = _last_use(flat)
    reused = (last >= 0) & (worth > 0)
    distance = np.concatenate(starts) - last - 1 - _larger_before(last)
    order = np.argsort(distance[reused], kind="stable")
    tokens_of = np.concatenate(([0], np.cumsum(worth[reused][order])))
    return Curve(distance[reused][order], tokens_of, int((last < 0).sum()), largest)


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
    top = total + 2
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
