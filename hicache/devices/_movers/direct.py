"""`direct`: the copy engines move runs of neighbouring pages, without a multiprocessor.

All runs of a copy are handed over in one call where the driver can take a batch, else one by one.
Must not live here: finding the runs (memory/runs).
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
