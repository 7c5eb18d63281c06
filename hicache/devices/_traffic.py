"""The work that a CUDA device puts on its streams: copies, writes, reads and page numbers; and how
copies are made: `Direct` here, and the kernel in `_kernel`, which needs Triton.

Lifetimes: a tensor is allocated, used and freed on one stream, and torch's allocator respects the
order of that stream. Host memory that must outlive the call is kept by the next event of the
stream. Page numbers are uploaded once for all layer groups of a copy, because these use the same
array, and arrays of pages are never changed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from hicache.core.types import Pages, Tier
from hicache.memory.layouts import Words
from hicache.memory.pools import Pool
from hicache.memory.runs import Offsets, Pair, Rows, Runs, merged, pair, placed, rows
from hicache.memory.torch_arena import TorchArena, as_seeds, in_room, scratch, stamp_tensor

from ._issuing import Line
from .base import Area, CopyJob, Direction, OnRead

Numbers: TypeAlias = NDArray[np.int64]


Runtime: TypeAlias = Any  # an `Accelerator`, or what tests have in its place

_REMEMBERED = 16  # more than a load has components or pools
_MANY = 256  # pieces of a layer, above which a copy goes to the driver layer by layer
_MOST_STEP = (1 << 31) - 1  # cuda.h: CU_DEVICE_ATTRIBUTE_MAX_PITCH, the same on every device so far
_Key: TypeAlias = tuple[int, int, Pair, int]

_WRITTEN_BYTES = 16 << 20  # content that a write makes at once


Batch: TypeAlias = Callable[[Offsets, Offsets, Offsets], None]
BatchRows: TypeAlias = Callable[[Offsets, Offsets, int, Rows], None]


class Route(NamedTuple):
    """One pool on the source tier and on the target tier."""

    source: Pool
    target: Pool
    pair: Pair


class Move(NamedTuple):
    """A copy of one pool. pages: (source, target); the target pages are distinct. layers: the
    pool's own layer indices.

    numbers: the same pages as int64[2, n] on the device, if the copy backend needs them. again:
    whether other layers of the same arrays of pages follow.
    """

    route: Route
    pages: tuple[Pages, Pages]
    numbers: torch.Tensor | None
    layers: range
    again: bool = False


class CopyBackend(Protocol):
    """needs_numbers: whether a `Move` must have the page numbers on the device."""

    needs_numbers: bool

    def copy(self, job: Move) -> None:
        """Queue the copy on the current stream."""


def route(source: Pool, target: Pool) -> Route:
    """The route between two views of one pool."""
    largest = min(source.plan.run_bytes, target.plan.run_bytes)
    shape = tuple(source.view.shape[2:])
    result = pair(shape, source.view.stride(), target.view.stride(), largest)
    return Route(source, target, result)


class Direct:
    """`direct`: the copy engines copy runs of neighbouring pages, without using a multiprocessor.

    Runs are given to the driver in one call if it has a call for batches, else one by one. The
    layer groups of a load move the same pages, so their runs are found once and then moved from
    layer to layer.

    Where a page is contiguous on host, a backup goes to the driver as one copy of rows for each
    page: 256 copies for 2.1 GB of Llama-3.1-8B, not 16,384. On an H200 they take 0.7 ms to issue,
    not 8 to 17, and move 53.7 GB/s, not 50.8 (pages of 16 tokens: 50 and 44, of one token: 24 and
    4). Loads do not: rows to the device took 115 ms to issue, and moved 34 GB/s.

    Another backup of many runs goes to the driver layer by layer, so that the first layer moves
    while the next is prepared: on an H100 this raises 2.1 GB of random pages from 42 to 50 GB/s.
    """

    needs_numbers = False

    def __init__(self, batch: Batch | None, batch_rows: BatchRows | None) -> None:
        """batch, batch_rows: those of an accelerator; None if its driver has none."""
        self._batch, self._batch_rows = batch, batch_rows
        # by the `id` of the arrays of pages; the arrays are kept, so that their ids stay valid
        self._known: dict[_Key, tuple[tuple[Pages, Pages], Runs]] = {}

    def copy(self, job: Move) -> None:
        pair, layers = job.route.pair, job.layers
        page = self._rows_of(job)
        if page is not None:
            self._put_rows(job, page)
            return
        step = 1 if len(job.pages[0]) * pair.pieces >= _MANY else len(layers)
        runs = self._merged(job, step)
        borders = job.route.source.segment, job.route.target.segment
        for start in range(layers.start, layers.stop, step):
            self._put(job.route, placed(runs, pair, range(start, layers.stop), borders))

    def _rows_of(self, job: Move) -> Rows | None:
        """The rows of each page, if they lie in one run of the target: so only of backups, and
        never across a border of registrations."""
        if self._batch_rows is None:
            return None
        pair, plan = job.route.pair, job.route.target.plan
        result = rows(pair, len(job.layers))
        if result is None or max(result.source, result.target) > _MOST_STEP:
            return None
        last = (result.number - 1) * result.target
        return result if last + pair.length <= plan.run_bytes else None

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

    def _put(self, route: Route, runs: Runs) -> None:
        source, target = route.source, route.target
        if self._batch is not None:
            self._batch(
                runs.target + target.flat.data_ptr(),
                runs.source + source.flat.data_ptr(),
                runs.length,
            )
            return
        for start, goal, length in zip(
            runs.source.tolist(), runs.target.tolist(), runs.length.tolist(), strict=True
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
        runs = merged(pair, *job.pages, layers)
        if len(self._known) == _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = (job.pages, runs)
        return runs


class TorchLine(Line):
    """One stream, with the page numbers last uploaded to it. numbers: the arrays and their tensor,
    by the `id` of each array. last: its last call that the issuing thread was given."""

    __slots__ = ("last", "numbers", "stream")

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream
        self.last = 0
        self.numbers: dict[tuple[int, ...], tuple[tuple[Pages, ...], torch.Tensor]] = {}


class Traffic:
    """Issues the work of one device. No call waits for the device. Another thread may call `copy`,
    but nothing else is called meanwhile for the same line."""

    def __init__(self, runtime: Runtime, arena: TorchArena, copy_backend: CopyBackend) -> None:
        self._runtime = runtime
        self._arena = arena
        self._copy_backend = copy_backend
        self._routes = _routes(arena)

    def pieces(self, job: CopyJob) -> int:
        """The pieces of all pools that a copy moves, if nothing is merged."""
        return len(job.source) * sum(
            way.pair.pieces * len(way.source.plan.layers_in(*job.layers))
            for way in self._routes[job.direction, job.component]
        )

    def copy(self, line: TorchLine, kept: list[object], job: CopyJob) -> None:
        """Queue a copy in every pool of the component. kept: of the event that comes after it."""
        pages = (job.source, job.target)
        again = job.layers != (0, self._arena.model.layers)
        with self._on(line, job.near):
            for way in self._routes[job.direction, job.component]:
                layers = way.source.plan.layers_in(*job.layers)
                if layers and len(job.source):
                    numbers = (
                        self._sent(line, kept, *pages) if self._copy_backend.needs_numbers else None
                    )
                    self._copy_backend.copy(Move(way, pages, numbers, layers, again))

    def write(self, line: TorchLine, area: Area, seeds: Words) -> None:
        """Queue a write of the bytes that the seeds determine, by few layers at once, so that only
        these need a second copy in memory; of few pages all layers at once, since the driver takes
        about 1,000 kernels on a stream and then waits for it (seen on an H100)."""
        pages, below = area.pages, area.tier is Tier.HOST
        if not len(pages):
            return
        with self._on(line, area):
            roots = self._keep(line.kept, as_seeds(seeds))
            for number, pool in enumerate(self._arena.pools(area.tier, area.component)):
                plan = pool.plan
                chosen = plan.layers_in(*area.layers)
                if not chosen:
                    continue
                aim = scratch(pool.plan, len(pages), self._runtime.place) if below else pool
                step = max(1, _WRITTEN_BYTES * plan.sizes.layer // (len(pages) * plan.page_bytes))
                for first in range(chosen.start, chosen.stop, step):
                    part = range(first, min(first + step, chosen.stop))
                    rows = stamp_tensor(plan, roots, number, part)
                    if below:
                        aim.view[part.start : part.stop].copy_(rows)
                    else:
                        numbers = self._sent(line, line.kept, pages)
                        aim.view[part.start : part.stop].index_copy_(1, numbers, rows)
                if below:
                    self._stage(line, route(aim, pool), (_all(pages), pages), chosen)

    def read(self, line: TorchLine, area: Area) -> None:
        """Queue a read of device pages whose result is not wanted."""
        if not len(area.pages):
            return
        with self._on(line, area):
            numbers = self._sent(line, line.kept, area.pages)
            for pool in self._arena.pools(area.tier, area.component):
                for layer in pool.plan.layers_in(*area.layers):
                    pool.view[layer].index_select(0, numbers)

    def look(self, line: TorchLine, area: Area, then: OnRead) -> None:
        """Queue a copy of the pages' bytes to the host. `then` is called with it when the next
        event is seen reached."""
        pages = area.pages
        arrived: list[torch.Tensor] = []
        with self._on(line, area):
            for pool in self._arena.pools(area.tier, area.component):
                chosen = pool.plan.layers_in(*area.layers)
                if area.tier is Tier.HOST:
                    aim = scratch(pool.plan, len(pages), self._runtime.place)
                    self._stage(line, route(pool, aim), (pages, _all(pages)), chosen)
                    rows = aim.view[chosen.start : chosen.stop]
                else:
                    rows = pool.view[chosen.start : chosen.stop]
                    rows = rows.index_select(1, self._sent(line, line.kept, pages))
                arrived.append(self._runtime.download(rows.contiguous()))
        line.after.append(lambda: then(tuple(rows.numpy() for rows in arrived)))

    @contextmanager
    def _on(self, line: TorchLine, area: Area) -> Iterator[None]:
        """Issue work on the line's stream. Memory that torch cannot get for it is an error in one
        line."""
        with (
            self._runtime.on(line.stream),
            in_room(f"to move {len(area.pages)} pages of {area.component}"),
        ):
            yield

    def _stage(
        self, line: TorchLine, way: Route, pages: tuple[Pages, Pages], layers: range
    ) -> None:
        """Queue a copy from or to scratch memory. Its page numbers are sent and not remembered,
        because nothing else uses them: they would push those of a load out."""
        if layers and len(pages[0]):
            numbers = (
                self._keep(line.kept, _stacked(pages)) if self._copy_backend.needs_numbers else None
            )
            self._copy_backend.copy(Move(way, pages, numbers, layers))

    def _sent(self, line: TorchLine, kept: list[object], *pages: Pages) -> torch.Tensor:
        """Page numbers on the device, int64[n], or int64[arrays, n] for several arrays. They are
        uploaded once and then found again, because the layer groups of a load use the same arrays
        in turn."""
        key = tuple(map(id, pages))
        known = line.numbers.get(key)
        if known is not None:
            return known[1]
        numbers = self._keep(kept, _stacked(pages))
        if len(line.numbers) == _REMEMBERED:
            del line.numbers[next(iter(line.numbers))]
        line.numbers[key] = (pages, numbers)  # keeps the arrays alive, so that their ids stay valid
        return numbers

    def _keep(self, kept: list[object], words: Numbers) -> torch.Tensor:
        """Upload words. The tensor and its source are kept until the next event is seen reached."""
        tensor: torch.Tensor
        tensor, source = self._runtime.upload(words)
        kept += (tensor, source)
        return tensor


def _all(pages: Pages) -> Pages:
    """The numbers of as many pages of scratch memory."""
    return np.arange(len(pages), dtype=np.int64)


def _stacked(pages: tuple[Pages, ...]) -> Numbers:
    full = np.stack(pages) if len(pages) > 1 else pages[0]
    return full.astype(np.int64, copy=False)


def _routes(arena: TorchArena) -> dict[tuple[Direction, str], tuple[Route, ...]]:
    return {
        (direction, component): tuple(
            route(source, target)
            for source, target in zip(
                *(arena.pools(tier, component) for tier in direction.ends), strict=True
            )
        )
        for direction in Direction
        for component in arena.model.components
    }
