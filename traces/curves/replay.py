"""A policy replayed at one capacity: hits of a trace, page by page.

A request hits the leading pages of its path that the cache has when it comes. Then it uses all of
its pages, the last one first, so that the root ends as the most recent one. Pages behind a missing
page are no hits, whether the cache has them or not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hicache import registry

from ..formats.base import Paged
from .policies.base import Policy, leading
from .runs import identified_tokens

POLICIES = "traces.curves.policies"


class Paths:
    """The paths of a trace, kept for several replays: eight bytes for each use of a page."""

    def __init__(self, trace: Paged, first: int = 0) -> None:
        self.page_size = trace.page_size
        self.first = first
        self.tokens = identified_tokens(trace).tolist()
        paths = [trace.chain(job) for job in trace.jobs]
        self._ends = np.cumsum([len(path) for path in paths]).tolist()
        self._flat = np.concatenate(paths) if paths else np.empty(0, dtype=np.int64)

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for end in self._ends:
            yield self._flat[start:end].tolist()
            start = end

    def hit(self, request: int, pages: int) -> int:
        """The tokens of this many leading pages that count as hits."""
        if request < self.first:
            return 0
        tokens: int = min(pages * self.page_size, self.tokens[request])
        return tokens


def make(policy: str, capacity: int) -> Policy:
    made: Policy = registry.load(POLICIES, policy).make(capacity)
    return made


def hit_tokens(paths: Paths, cache: Policy) -> int:
    """Prompt tokens that the requests hit, in order, in a cache that is empty at first."""
    resident = cache.resident
    hits = 0
    for request, path in enumerate(paths):
        hits += paths.hit(request, leading(path, resident))
        path.reverse()
        cache.use(path)
    return hits
