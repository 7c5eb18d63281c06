"""Counts the hits of a replay, and computes three definitions of a hit rate and their ceiling.

Only the first admission of a request counts; one that was preempted and admitted again is not
counted twice. Does not run a replay (see hits and timed) or print anything (see report).

    token-weighted      hit tokens / prompt tokens                  long requests count more
    block-weighted      hit pages / prompt pages; a partial page counts as one
    mean per request    the mean of each request's token-weighted rate
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.workload import Job

from ..formats._jobs import Jobs
from ..formats.base import Paged
from ..results.record import NO_SHARE, Share, Tiers, share

Tokens: TypeAlias = NDArray[np.int32]  # one count for each request; below 2**24 (formats/base)

_NOT_ADMITTED = -1
_BITS = (1 << np.arange(8)).astype(np.uint8)


class Row(NamedTuple):
    """What one request hit, in tokens; see results/record.Share."""

    request: int
    input_tokens: int
    ceiling: int
    device: int
    host: int
    storage: int

    @property
    def hit_tokens(self) -> int:
        return self.device + self.host + self.storage

    @property
    def first_seen(self) -> int:
        return self.input_tokens - self.ceiling

    @property
    def lost(self) -> int:
        return max(0, self.ceiling - self.hit_tokens)


class Account:
    """Hits of each request of a trace. ceiling: tokens per request, from `ceiling_of`."""

    def __init__(self, jobs: Jobs, page_size: int, ceiling: Tokens) -> None:
        self._page_size = page_size
        self._ceiling = ceiling
        self._input = jobs.input_lengths
        self._device, self._host, self._storage = (
            array("i", [_NOT_ADMITTED]) * len(jobs) for _ in range(3)
        )

    def admit(self, index: int, device: int, host: int, storage: int = 0) -> None:
        """Records the prompt tokens that request `index` hit on each tier when it was admitted."""
        if self._device[index] == _NOT_ADMITTED:
            self._device[index] = device
            self._host[index] = host
            self._storage[index] = storage

    def whole(self) -> Share:
        """Sums over all requests that were served."""
        return self._share(steady=False)

    def steady(self) -> Share:
        """Sums over the second half of the served requests, in the order of the trace.

        It includes the middle one of an odd number.
        """
        return self._share(steady=True)

    def hit_tokens(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> tuple[int, int]:
        """(hit tokens, prompt tokens) of these requests."""
        wanted = np.asarray(indices, dtype=np.int64)
        tiers = [tier[wanted] for tier in self._tiers()]
        admitted = tiers[0] != _NOT_ADMITTED
        return sum(_sum(tier[admitted]) for tier in tiers), _sum(self._input[wanted])

    def _tiers(self) -> tuple[Tokens, Tokens, Tokens]:
        """The hits on each tier by request, where it was admitted."""
        return np.asarray(self._device), np.asarray(self._host), np.asarray(self._storage)

    def served(self, index: int) -> bool:
        return self._device[index] != _NOT_ADMITTED

    def all_served(self) -> NDArray[np.int64]:
        """The requests that were admitted, in the order of the trace."""
        return np.flatnonzero(np.asarray(self._device) != _NOT_ADMITTED)

    def rows(self) -> Iterator[Row]:
        """What each served request hit, in the order of the trace."""
        for index in self.all_served().tolist():
            yield Row(
                index,
                int(self._input[index]),
                int(self._ceiling[index]),
                self._device[index],
                self._host[index],
                self._storage[index],
            )

    def _share(self, steady: bool) -> Share:
        served = self.all_served()
        if not len(served):
            return NO_SHARE
        if steady:
            served = served[len(served) // 2 :]
        total, ceiling = self._input[served], self._ceiling[served]
        tiers = [tier[served] for tier in self._tiers()]
        hit = tiers[0] + tiers[1] + tiers[2]
        return share(
            len(served),
            _sum(total),
            Tiers(*map(_sum, tiers)),
            _sum(ceiling),
            _sum(np.maximum(ceiling - hit, 0)),
            self._pages(hit) / self._pages(total),
            float((hit / total).mean()),
        )

    def _pages(self, tokens: Tokens) -> int:
        return _sum(-(-tokens // self._page_size))


def _sum(tokens: Tokens) -> int:
    return int(tokens.sum(dtype=np.int64))


def ceiling_of(trace: Paged, whole_prompts: bool) -> Tokens:
    """Prompt tokens that an unbounded cache would hit, per request: the leading pages seen before.

    whole_prompts: whether the last prompt token may hit (`hits` mode), or must be computed (`timed`
    mode: an engine needs its logits).
    """
    size = trace.page_size
    seen = np.zeros(1 << 13, dtype=np.uint8)  # one bit a page
    ceiling = np.zeros(int(trace.jobs.numbers.max(initial=-1)) + 1, dtype=np.int32)
    for job in trace.jobs:
        index = job.index
        chain = trace.chain(job)
        if not len(chain):
            continue
        places, bits = chain >> 3, _BITS[chain & 7]
        largest = int(places.max())
        if largest >= len(seen):
            seen = np.concatenate((seen, np.zeros(max(len(seen), largest + 1), dtype=np.uint8)))
        known = (seen[places] & bits) != 0
        leading = int(known.argmin())  # all behind a page that is new are new
        leading = len(chain) if known[leading] else leading
        if whole_prompts:
            ceiling[index] = min(leading * size, prompt_tokens(job, trace))
        else:
            ceiling[index] = min(leading, (job.input_length - 1) // size) * size
        if leading < len(chain):
            np.bitwise_or.at(seen, places[leading:], bits[leading:])
    return ceiling


def prompt_tokens(job: Job, trace: Paged) -> int:
    """Prompt tokens in pages that the trace identifies: all, or those in whole pages."""
    return min(job.input_length, int(trace.prompt_pages[job.index]) * trace.page_size)
