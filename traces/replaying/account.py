"""Counts the hits of a replay, and computes three definitions of a hit rate and their ceiling.

Only the first admission of a request counts; one that was preempted and admitted again is not
counted twice. Does not run a replay (see hits and timed) or print anything (see report).

    token-weighted      hit tokens / prompt tokens                  long requests count more
    block-weighted      hit pages / prompt pages; a partial page counts as one
    mean per request    the mean of each request's token-weighted rate
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hicache.core.types import Pages
from sim.workload import Job

from ..formats.base import Paged


@dataclass(frozen=True, slots=True)
class Share:
    """Sums over some requests, in tokens. device + host + storage + computed = input.

    ceiling: prompt tokens that an unbounded cache, filled in file order, would have hit.
    lost: tokens of the ceiling that were not hit: evicted, refused, or still being computed.
    """

    requests: int
    input_tokens: int
    device: int
    host: int
    storage: int
    ceiling: int
    lost: int
    block_rate: float
    mean_rate: float

    @property
    def hit_tokens(self) -> int:
        return self.device + self.host + self.storage

    @property
    def computed_tokens(self) -> int:
        return self.input_tokens - self.hit_tokens

    @property
    def first_seen(self) -> int:
        """Prompt tokens that no earlier request of the trace could have left in a cache."""
        return self.input_tokens - self.ceiling

    @property
    def hit_rate(self) -> float:
        return self.rate(self.hit_tokens)

    def rate(self, tokens: int) -> float:
        return tokens / self.input_tokens if self.input_tokens else 0.0


class Row(NamedTuple):
    """What one request hit, in tokens; see Share."""

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
    """Hits of each request of a trace. ceiling: int64 tokens per request, from `ceiling_of`."""

    def __init__(self, jobs: Sequence[Job], page_size: int, ceiling: Pages) -> None:
        self._page_size = page_size
        self._ceiling = ceiling
        self._input = np.fromiter((job.input_length for job in jobs), np.int64, len(jobs))
        self._hits: dict[int, tuple[int, int, int]] = {}

    def admit(self, index: int, device: int, host: int, storage: int = 0) -> None:
        """Records the prompt tokens that request `index` hit on each tier when it was admitted."""
        self._hits.setdefault(index, (device, host, storage))

    def whole(self) -> Share:
        """Sums over all requests that were served."""
        return self._share(steady=False)

    def steady(self) -> Share:
        """Sums over the second half of the served requests, in the order of the trace.

        It includes the middle one of an odd number.
        """
        return self._share(steady=True)

    def hit_tokens(self, indices: Sequence[int]) -> tuple[int, int]:
        """(hit tokens, prompt tokens) of these requests."""
        hit = sum(sum(self._hits.get(index, ())) for index in indices)
        return hit, int(self._input[list(indices)].sum())

    def served(self, index: int) -> bool:
        return index in self._hits

    def rows(self) -> Iterator[Row]:
        """What each served request hit, in the order of the trace."""
        for index in sorted(self._hits):
            tiers = self._hits[index]
            yield Row(index, int(self._input[index]), int(self._ceiling[index]), *tiers)

    def _share(self, steady: bool) -> Share:
        rows = [(index, *hits) for index, hits in sorted(self._hits.items())]
        if not rows:
            return Share(0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)
        table = np.array(rows, dtype=np.int64)
        if steady:
            table = table[len(table) // 2 :]
        index, tiers = table[:, 0], table[:, 1:]
        total, ceiling, hit = self._input[index], self._ceiling[index], tiers.sum(axis=1)
        device, host, storage = (int(tokens) for tokens in tiers.sum(axis=0))
        return Share(
            requests=len(table),
            input_tokens=int(total.sum()),
            device=device,
            host=host,
            storage=storage,
            ceiling=int(ceiling.sum()),
            lost=int(np.maximum(ceiling - hit, 0).sum()),
            block_rate=self._pages(hit) / self._pages(total),
            mean_rate=float((hit / total).mean()),
        )

    def _pages(self, tokens: Pages) -> int:
        return int((-(-tokens // self._page_size)).sum())


def ceiling_of(trace: Paged, whole_prompts: bool) -> Pages:
    """Prompt tokens that an unbounded cache would hit, per request: the leading pages seen before.

    whole_prompts: whether the last prompt token may hit (`hits` mode), or must be computed (`timed`
    mode: an engine needs its logits).
    """
    size = trace.page_size
    seen = np.zeros(1 << 16, dtype=np.bool_)
    numbers = (job.index for job in trace.jobs)
    ceiling = np.zeros(max(numbers, default=-1) + 1, dtype=np.int64)
    for job in trace.jobs:
        index = job.index
        chain = trace.chain(job)
        if not len(chain):
            continue
        largest = int(chain.max())
        if largest >= len(seen):
            seen = np.concatenate((seen, np.zeros(max(len(seen), largest + 1), dtype=np.bool_)))
        known = seen[chain]
        leading = len(chain) if known.all() else int(known.argmin())
        if whole_prompts:
            ceiling[index] = min(leading * size, prompt_tokens(job, trace))
        else:
            ceiling[index] = min(leading, (job.input_length - 1) // size) * size
        seen[chain] = True
    return ceiling


def prompt_tokens(job: Job, trace: Paged) -> int:
    """Prompt tokens in pages that the trace identifies: all, or those in whole pages."""
    if trace.knows_output:
        return job.input_length // trace.page_size * trace.page_size
    return job.input_length
