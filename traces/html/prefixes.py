"""The tree of hot prefixes of a trace: which pages many requests share, and what that saves.

Counts whole pages of prompts in one pass, with those of answers that a later prompt repeats. Pages
that the same requests share become one edge. Keeps the edges that save most, and all above them.
Does not draw; see render.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..formats.base import Paged
from ..replaying.account import Account
from .document import MOST_PREFIXES, Prefix, Prefixes


class _Counts:
    """By page of the trace: requests that have it in their prompt or answer, prompts that could
    reuse it, the page before it, its place, the first request, hits."""

    def __init__(self) -> None:
        self.requests = np.zeros(1 << 13, dtype=np.int32)
        self.reusable, self.parent, self.place, self.first, self.hits = (
            np.zeros_like(self.requests) for _ in range(5)
        )

    def grow(self, least: int) -> None:
        if least <= len(self.requests):
            return
        more = np.zeros(max(len(self.requests), least - len(self.requests)), dtype=np.int32)
        for name in ("requests", "reusable", "parent", "place", "first", "hits"):
            setattr(self, name, np.concatenate((getattr(self, name), more)))


def hot_prefixes(paged: Paged, account: Account | None = None) -> Prefixes:
    """The tree of the trace. account: of a replay, which says what was hit."""
    counts = _counted(paged, account)
    shared = np.flatnonzero(counts.reusable)
    if not len(shared):
        return Prefixes(paged.page_size, [], 0, 0)
    head = _heads(counts, shared)
    size = len(counts.requests)
    pages = np.bincount(head[shared], minlength=size)
    hits = np.bincount(head[shared], weights=counts.hits[shared], minlength=size).astype(np.int64)
    heads = np.flatnonzero(pages)
    saved = counts.reusable[heads].astype(np.int64) * pages[heads]
    above = np.where(counts.parent[heads] < 0, -1, head[counts.parent[heads]])
    chosen = _chosen(heads, saved, above)
    number = {page: place for place, page in enumerate(chosen)}
    rows = {int(page): place for place, page in enumerate(heads)}
    edges = []
    for page in chosen:
        row, length = rows[page], int(pages[page])
        edges.append(
            Prefix(
                id=number[page],
                parent=number.get(int(above[row]), -1),
                end_tokens=(int(counts.place[page]) + length) * paged.page_size,
                tokens=length * paged.page_size,
                requests=int(counts.requests[page]),
                reusable_tokens=int(saved[row]) * paged.page_size,
                hit_tokens=None if account is None else int(hits[page]) * paged.page_size,
                first_request=int(counts.first[page]),
            )
        )
    left = int(saved.sum()) * paged.page_size - sum(edge.reusable_tokens for edge in edges)
    return Prefixes(paged.page_size, edges, len(heads) - len(edges), left)


def _counted(paged: Paged, account: Account | None) -> _Counts:
    counts = _Counts()
    hit = {} if account is None else {row.request: row.hit_tokens for row in account.rows()}
    for job in paged.jobs:
        chain = paged.chain(job)
        if not len(chain):
            continue
        counts.grow(int(chain.max()) + 1)
        seen = counts.requests[chain] > 0
        known = len(chain) if seen.all() else int(seen.argmin())
        prompt = job.input_length // paged.page_size
        new = chain[known:]
        counts.requests[chain] += 1
        counts.reusable[chain[: min(known, prompt)]] += 1
        counts.hits[chain[: min(prompt, hit.get(job.index, 0) // paged.page_size)]] += 1
        counts.first[new] = job.index
        counts.place[new] = np.arange(known, len(chain))
        counts.parent[new] = np.concatenate(([-1], chain))[known : len(chain)]
    return counts


def _heads(counts: _Counts, shared: NDArray[np.int64]) -> NDArray[np.int64]:
    """By page, the first page of its edge: pages with the same requests are one edge."""
    head = np.arange(len(counts.requests), dtype=np.int64)
    parent = counts.parent[shared]
    joined = (
        (parent >= 0)
        & (counts.requests[shared] == counts.requests[parent])
        & (counts.reusable[shared] == counts.reusable[parent])
    )
    head[shared[joined]] = parent[joined]
    while True:
        further = head[head]
        if np.array_equal(further, head):
            return head
        head = further


def _chosen(
    heads: NDArray[np.int64], saved: NDArray[np.int64], above: NDArray[np.int64]
) -> list[int]:
    """The edges that save most, with those above them: parents first, the largest first."""
    parent_of = dict(zip(heads.tolist(), above.tolist(), strict=True))
    kept: set[int] = set()
    order = np.lexsort((heads, -saved))[: 4 * MOST_PREFIXES]
    for page in heads[order].tolist():
        path = []
        while page >= 0 and page not in kept:
            path.append(page)
            page = parent_of[page]
        if len(kept) + len(path) <= MOST_PREFIXES:
            kept.update(path)
    value = dict(zip(heads.tolist(), saved.tolist(), strict=True))
    below: dict[int, list[int]] = {}
    for page in sorted(kept, key=lambda one: (-value[one], one)):
        below.setdefault(parent_of[page], []).append(page)
    found: list[int] = []
    waiting = below.get(-1, [])[::-1]
    while waiting:
        page = waiting.pop()
        found.append(page)
        waiting += below.get(page, [])[::-1]
    return found
