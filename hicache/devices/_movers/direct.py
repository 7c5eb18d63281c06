"""`direct`: the copy engines copy runs of neighbouring pages, without using a multiprocessor.

All runs of a copy are given to the driver in one call if it has a call for batches, else one by
one. The layer groups of a load move the same pages, so their runs are found once and then moved
from layer to layer. Does not find the runs; see `hicache/memory/runs`.
"""

from __future__ import annotations

from typing import TypeAlias

from hicache.core.types import Pages
from hicache.memory.runs import Pair, Runs, merged, placed

from .base import Move, Options

_REMEMBERED = 16  # more than a load has pools
_MOST_RUNS = 1 << 20  # 24 MiB
_Key: TypeAlias = tuple[int, int, Pair, int]


class Mover:
    """See `base.Mover`."""

    needs_numbers = False

    def __init__(self, options: Options) -> None:
        self._batch = options.batch
        # by the `id` of the arrays of pages; the arrays are kept, so that their ids stay valid
        self._known: dict[_Key, tuple[tuple[Pages, Pages], Runs]] = {}

    def copy(self, job: Move) -> None:
        source, target = job.route.source, job.route.target
        segments = (source.segment, target.segment)
        found = placed(self._merged(job), job.route.pair, job.layers, segments)
        if self._batch is not None:
            self._batch(
                found.target + target.flat.data_ptr(),
                found.source + source.flat.data_ptr(),
                found.length,
            )
            return
        for start, goal, length in zip(
            found.source.tolist(), found.target.tolist(), found.length.tolist(), strict=True
        ):
            target.flat[goal : goal + length].copy_(
                source.flat[start : start + length], non_blocking=True
            )

    def _merged(self, job: Move) -> Runs:
        pair, layers = job.route.pair, len(job.layers)
        if not job.again:
            return merged(pair, *job.pages, layers)
        key = (id(job.pages[0]), id(job.pages[1]), pair, layers)
        known = self._known.get(key)
        if known is not None:
            return known[1]
        found = merged(pair, *job.pages, layers)
        while self._known and not self._has_room(len(found.length)):
            del self._known[next(iter(self._known))]
        self._known[key] = (job.pages, found)
        return found

    def _has_room(self, runs: int) -> bool:
        held = sum(len(known.length) for _, known in self._known.values())
        return len(self._known) < _REMEMBERED and held + runs <= _MOST_RUNS
