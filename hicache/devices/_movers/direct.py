"""`direct`: the copy engines copy runs of neighbouring pages, without using a multiprocessor.

Runs are given to the driver in one call if it has a call for batches, else one by one. The layer
groups of a load move the same pages, so their runs are found once and then moved from layer to
layer.

Where a page is contiguous on host, a backup goes to the driver as one copy of rows for each page:
256 copies for 2.1 GB of Llama-3.1-8B, not 16,384. On an H200 they take 0.7 ms to issue, not 8 to
17, and move 53.7 GB/s, not 50.8 (pages of 16 tokens: 50 and 44, of one token: 24 and 4). Loads do
not: rows to the device took 115 ms to issue, and moved 34 GB/s.

Another backup of many runs goes to the driver layer by layer, so that the first layer moves while
the next is prepared: on an H100 this raises 2.1 GB of random pages from 42 to 50 GB/s. Does not
find the runs; see `hicache/memory/runs`.
"""

from __future__ import annotations

from typing import TypeAlias

from hicache.core.types import Pages
from hicache.memory.runs import Pair, Rows, Runs, merged, placed, rows

from .base import Move, Options, Route

_REMEMBERED = 16  # more than a load has pools
_MANY = 256  # pieces of a layer, above which a copy goes to the driver layer by layer
_MOST_RUNS = 1 << 20  # 24 MiB
_MOST_STEP = (1 << 31) - 1  # cuda.h: CU_DEVICE_ATTRIBUTE_MAX_PITCH, the same on every device so far
_Key: TypeAlias = tuple[int, int, Pair, int]


class Mover:
    """See `base.Mover`."""

    needs_numbers = False

    def __init__(self, options: Options) -> None:
        self._batch, self._batch_rows = options.batch, options.batch_rows
        # by the `id` of the arrays of pages; the arrays are kept, so that their ids stay valid
        self._known: dict[_Key, tuple[tuple[Pages, Pages], Runs]] = {}

    def copy(self, job: Move) -> None:
        pair, layers = job.route.pair, job.layers
        page = self._rows_of(job)
        if page is not None:
            self._put_rows(job, page)
            return
        step = 1 if len(job.pages[0]) * pair.pieces >= _MANY else len(layers)
        found = self._merged(job, step)
        for start in range(layers.start, layers.stop, step):
            self._put(job.route, placed(found, pair, range(start, layers.stop), _segments(job)))

    def _rows_of(self, job: Move) -> Rows | None:
        """The rows of each page, if they lie in one run of the target: so only of backups, and
        never across a border of registrations."""
        if self._batch_rows is None:
            return None
        pair, plan = job.route.pair, job.route.target.plan
        found = rows(pair, len(job.layers))
        if found is None or max(found.source, found.target) > _MOST_STEP:
            return None
        last = (found.number - 1) * found.target
        return found if last + pair.length <= plan.run_bytes else None

    def _put_rows(self, job: Move, page: Rows) -> None:
        assert self._batch_rows is not None, "rows are found only for a driver that takes them"
        pair, first = job.route.pair, job.layers.start
        source, target = (
            pool.flat.data_ptr() + pages * side.page + first * side.layer
            for pool, pages, side in zip(
                job.route[:2], job.pages, (pair.source, pair.target), strict=True
            )
        )
        self._batch_rows(target, source, pair.length, page)

    def _put(self, route: Route, found: Runs) -> None:
        source, target = route.source, route.target
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

    def _merged(self, job: Move, layers: int) -> Runs:
        """The runs of the first `layers` layers."""
        pair = job.route.pair
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


def _segments(job: Move) -> tuple[int, int]:
    return job.route.source.segment, job.route.target.segment
