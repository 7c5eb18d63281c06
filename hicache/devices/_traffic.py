"""The work that a CUDA device puts on its streams: copies, writes, reads and page numbers.

The arguments of its calls were checked before. It does not create streams or marks, see `cuda`,
choose how a copy is made, see `_movers`, or call CUDA, see `_accelerator`.

Lifetimes: a tensor is allocated, used and freed on one stream, and torch's allocator respects the
order of that stream. Host memory that must outlive the call is kept by the next mark of the stream.
Page numbers are uploaded once for all layer groups of a copy, because these use the same array, and
arrays of pages are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from hicache import registry
from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.memory.layouts import Words
from hicache.memory.runs import Offsets, Rows
from hicache.memory.torch_arena import (
    TorchArena,
    TorchPool,
    as_seeds,
    in_room,
    scratch,
    stamp_tensor,
)

from ._issuing import Issued
from ._marks import Line
from ._movers.base import Move, Mover, Options, Route, route
from .base import Area, CopyJob, Direction, Peeker

Numbers: TypeAlias = NDArray[np.int64]

_MOVERS = "hicache.devices._movers"


class Runtime(Protocol):
    """The methods of `_accelerator.Accelerator` that a device uses. Streams and events are objects
    of the accelerator."""

    place: torch.device
    batches: bool

    def attach(self) -> None: ...
    def stream(self) -> Any: ...
    def event(self, timed: bool) -> Any: ...
    def on(self, stream: Any) -> AbstractContextManager[object]: ...
    def upload(self, words: Numbers) -> tuple[torch.Tensor, object]: ...
    def download(self, rows: torch.Tensor) -> torch.Tensor: ...
    def hold(self, stream: Any, time_ns: int) -> None: ...
    def finish(self) -> None: ...
    def free(self) -> int: ...
    def register(self, address: int, size: int) -> int: ...
    def unregister(self, address: int) -> int: ...
    def refusal(self, code: int) -> str: ...
    def batch(self, targets: Offsets, sources: Offsets, lengths: Offsets) -> None: ...
    def batch_rows(self, targets: Offsets, sources: Offsets, length: int, rows: Rows) -> None: ...


_REMEMBERED = 16  # more than a load has components
_WRITTEN_BYTES = 16 << 20  # content that a write makes at once


class TorchLine(Line[Issued]):
    """One stream, with the page numbers last uploaded to it. numbers: the arrays and their tensor,
    by the `id` of each array. last: its last call that the issuing thread was given. lent: how
    often torch itself issues work on it just now."""

    __slots__ = ("last", "lent", "numbers", "stream")

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream
        self.last = self.lent = 0
        self.numbers: dict[tuple[int, ...], tuple[tuple[Pages, ...], torch.Tensor]] = {}


class Traffic:
    """Issues the work of one device. No call waits for the device. Another thread may call `copy`,
    but nothing else is called meanwhile for the same line."""

    def __init__(self, runtime: Runtime, arena: TorchArena, mover: Mover) -> None:
        self._runtime = runtime
        self._arena = arena
        self._mover = mover
        self._routes = _routes(arena)

    def pieces(self, job: CopyJob) -> int:
        """The pieces of all pools that a copy moves, if nothing is merged."""
        return len(job.source) * sum(
            way.pair.pieces * len(way.source.plan.layers_in(*job.layers))
            for way in self._routes[job.direction, job.component]
        )

    def copy(self, line: TorchLine, kept: list[object], job: CopyJob) -> None:
        """Queue a copy in every pool of the component. kept: of the mark that comes after it."""
        pages = (job.source, job.target)
        again = job.layers != (0, self._arena.model.layers)
        with self._on(line, job.near):
            for way in self._routes[job.direction, job.component]:
                layers = way.source.plan.layers_in(*job.layers)
                if layers and len(job.source):
                    numbers = self._sent(line, kept, *pages) if self._mover.needs_numbers else None
                    self._mover.copy(Move(way, pages, numbers, layers, again))

    def write(self, line: TorchLine, area: Area, seeds: Words) -> None:
        """Queue a write of the bytes that the seeds determine.

        It goes by few layers at once, so that only these need a second copy in memory. A write of
        few pages takes all layers at once: the driver takes about 1,000 kernels on a stream and
        then waits for it (seen on an H100), and one layer takes some 40.
        """
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
                aim = self._scratch(pool, pages) if below else pool
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

    def look(self, line: TorchLine, area: Area, then: Peeker) -> None:
        """Queue a copy of the pages' bytes to the host. `then` is called with it when the next mark
        is seen reached."""
        pages = area.pages
        arrived: list[torch.Tensor] = []
        with self._on(line, area):
            for pool in self._arena.pools(area.tier, area.component):
                chosen = pool.plan.layers_in(*area.layers)
                if area.tier is Tier.HOST:
                    aim = self._scratch(pool, pages)
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
            in_room(
                f"to move {len(area.pages)} pages of {area.component}",
                "ask for fewer pages at once",
            ),
        ):
            yield

    def _scratch(self, pool: TorchPool, pages: Pages) -> TorchPool:
        """Device memory for as many pages of a host pool, allocated for the current stream."""
        return scratch(pool.plan, len(pages), self._runtime.place)

    def _stage(
        self, line: TorchLine, way: Route, pages: tuple[Pages, Pages], layers: range
    ) -> None:
        """Queue a copy from or to scratch memory. Its page numbers are sent and not remembered,
        because nothing else uses them: they would push those of a load out."""
        if layers and len(pages[0]):
            numbers = self._keep(line.kept, _stacked(pages)) if self._mover.needs_numbers else None
            self._mover.copy(Move(way, pages, numbers, layers))

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
        """Upload words. The tensor and its source are kept until the next mark is seen reached."""
        tensor, source = self._runtime.upload(words)
        kept += (tensor, source)
        return tensor


def _all(pages: Pages) -> Pages:
    """The numbers of as many pages of scratch memory."""
    return np.arange(len(pages), dtype=np.int64)


def _stacked(pages: tuple[Pages, ...]) -> Numbers:
    whole = np.stack(pages) if len(pages) > 1 else pages[0]
    return whole.astype(np.int64, copy=False)


def mover_of(name: str, options: Options) -> Mover:
    """The backend with this name. Raises CallerError if a package that it needs is missing."""
    try:
        mover: Mover = registry.load(_MOVERS, name).Mover(options)
    except ModuleNotFoundError as error:
        raise CallerError(
            f"io_backend {name}: expected the package {error.name}, found none; "
            f"pip install {error.name}, or use io_backend direct"
        ) from None
    return mover


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
