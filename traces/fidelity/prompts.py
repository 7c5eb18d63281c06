"""The requests of a published run, as a workload of the simulator.

A prompt is a list of segments, each of a stream of tokens: two prompts share the pages that lie in
the same streams at the same places. Without segments a prompt has a stream of its own, so nothing
is shared. Outputs are never shared. Does not draw lengths (see lengths).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hicache.core.types import Key
from sim.workload import Job

Segments = tuple[tuple[int, int], ...]
_PAGES = 1 << 24  # of one stream


@dataclass(frozen=True)
class Prompts:
    """See the module. segments: (stream, tokens) of each prompt, in order; () where nothing is
    shared. Streams are at least 0."""

    page_size: int
    jobs: Sequence[Job]
    segments: Sequence[Segments] = ()

    def key(self, job: Job, length: int) -> Key:
        pages = length // self.page_size
        if not self.segments:
            return Key.from_page_ids(self._own(job, 0, pages))
        found: list[NDArray[np.int64]] = []
        end, done = 0, 0
        for stream, tokens in self.segments[job.index]:
            end += tokens
            last = min(end // self.page_size, pages)
            if last > done:
                found.append(stream * _PAGES + np.arange(done, last, dtype=np.int64))
                done = last
        if pages > done:
            found.append(self._own(job, done, pages))
        return Key.from_page_ids(np.concatenate(found) if found else [])

    def _own(self, job: Job, first: int, end: int) -> NDArray[np.int64]:
        stream = self._streams + job.index
        return stream * _PAGES + np.arange(first, end, dtype=np.int64)

    @cached_property
    def _streams(self) -> int:
        """One more than the highest stream of any segment."""
        return 1 + max((stream for each in self.segments for stream, _ in each), default=-1)
