"""`direct`: the copy engines copy runs of neighbouring pages, without using a multiprocessor.

All runs of a copy are given to the driver in one call if it has a call for batches, else one by
one. Does not find the runs; see `hicache/memory/runs`.
"""

from __future__ import annotations

from hicache.memory.runs import runs

from .base import Move, Options


class Mover:
    """See `base.Mover`."""

    needs_numbers = False

    def __init__(self, options: Options) -> None:
        self._batch = options.batch

    def copy(self, job: Move) -> None:
        source, target = job.route.source, job.route.target
        segments = (source.segment, target.segment)
        found = runs(job.route.pair, *job.pages, job.layers, segments)
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
