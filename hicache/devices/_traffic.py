"""The work that a CUDA device puts on its streams: copies, writes, reads and page numbers.

The arguments of its calls were checked before. It does not create streams or marks, see `cuda`,
choose how a copy is made, see `_movers`, or call CUDA, see `_accelerator`.

Lifetimes: a tensor is allocated, used and freed on one stream, and torch's allocator respects the
order of that stream. Host memory that must outlive the call is kept by the next mark of the stream.
Page numbers are uploaded once for all layer groups of a copy, because these use the same array, and
arrays of pages are never changed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from hicache.core import registry
from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.memory.runs import Offsets
from hicache.memory.stamp import Words
from hicache.memory.torch_arena import TorchArena, TorchPool, as_seeds, scratch, stamp_tensor

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
    def batch(self, targets: Offsets, sources: Offsets, lengths: Offsets) -> None: ...


_REMEMBERED = 16  # more than a load has components


class TorchLine(Line):
    """One stream, with the page numbers last uploaded to it. numbers: the arrays and their tensor,
    by the `id` of each array."""

    __slots__ = ("numbers", "stream")

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream
        self.numbers: dict[tuple[int, ...], tuple[tuple[Pages, ...], torch.Tensor]] = {}


class Traffic:
    """Issues the work of one device. No call waits for the device."""

    def __init__(self, runtime: Runtime, arena: TorchArena, mover: Mover) -> None:
        self._runtime = runtime
        self._arena = arena
        self._mover = mover
        self._routes = _routes(arena)

    def copy(self, line: TorchLine, job: CopyJob) -> None:
        """Queue a copy in every pool of the component."""
        pages = (job.source, job.target)
        with self._runtime.on(line.stream):
            for way in self._routes[job.direction, job.component]:
                self._move(line, way, pages, way.source.plan.layers_in(*job.layers))

    def write(self, line: TorchLine, area: Area, seeds: Words) -> None:
        """Queue a write of the bytes that the seeds determine. It goes layer by layer, so that only
        one layer of the pages needs a second copy in memory."""
        pages, below = area.pages, area.tier is Tier.HOST
        if not len(pages):
            return
        with self._runtime.on(line.stream):
            roots = self._keep(line, as_seeds(seeds))
            for number, pool in enumerate(self._arena.pools(area.tier, area.component)):
                chosen = pool.plan.layers_in(*area.layers)
                aim, numbers = pool, pages
                if below:
                    aim, numbers = self._scratch(pool, len(pages))
                there = self._sent(line, numbers)[0]
                for layer in chosen:
                    rows = stamp_tensor(pool.plan, roots, number, range(layer, layer + 1))
                    aim.view[layer].index_copy_(0, there, rows[0])
                if below:
                    self._move(line, route(aim, pool), (numbers, pages), chosen)

    def read(self, line: TorchLine, area: Area) -> None:
        """Queue a read of device pages whose result is not wanted."""
        if not len(area.pages):
            return
        with self._runtime.on(line.stream):
            numbers = self._sent(line, area.pages)[0]
            for pool in self._arena.pools(area.tier, area.component):
                for layer in pool.plan.layers_in(*area.layers):
                    pool.view[layer].index_select(0, numbers)

    def look(self, line: TorchLine, area: Area, then: Peeker) -> None:
        """Queue a copy of the pages' bytes to the host. `then` is called with it when the next mark
        is seen reached."""
        pages = area.pages
        arrived: list[torch.Tensor] = []
        with self._runtime.on(line.stream):
            for pool in self._arena.pools(area.tier, area.component):
                chosen = pool.plan.layers_in(*area.layers)
                aim, numbers = pool, pages
                if area.tier is Tier.HOST:
                    aim, numbers = self._scratch(pool, len(pages))
                    self._move(line, route(pool, aim), (pages, numbers), chosen)
                rows = aim.view[chosen.start : chosen.stop]
                rows = rows.index_select(1, self._sent(line, numbers)[0])
                arrived.append(self._runtime.download(rows.contiguous()))
        line.after.append(lambda: then(tuple(rows.numpy() for rows in arrived)))

    def _scratch(self, pool: TorchPool, pages: int) -> tuple[TorchPool, Pages]:
        """Device memory for `pages` pages of a host pool, allocated for the current stream, and
        their page numbers."""
        staging = scratch(pool.plan, pages, self._runtime.place)
        return staging, np.arange(pages, dtype=np.int64)

    def _move(self, line: TorchLine, way: Route, pages: tuple[Pages, Pages], layers: range) -> None:
        """Queue the copy of one pool. The line's stream must be current."""
        if layers and len(pages[0]):
            numbers = self._sent(line, *pages) if self._mover.needs_numbers else None
            self._mover.copy(Move(way, pages, numbers, layers))

    def _sent(self, line: TorchLine, *pages: Pages) -> torch.Tensor:
        """Page numbers on the device, int64[arrays, n]. They are uploaded once and then found
        again, because the layer groups of a load use the same arrays in turn."""
        key = tuple(map(id, pages))
        known = line.numbers.get(key)
        if known is not None:
            return known[1]
        numbers = self._keep(line, np.stack(pages).astype(np.int64, copy=False))
        if len(line.numbers) == _REMEMBERED:
            del line.numbers[next(iter(line.numbers))]
        line.numbers[key] = (pages, numbers)  # keeps the arrays alive, so that their ids stay valid
        return numbers

    def _keep(self, line: TorchLine, words: Numbers) -> torch.Tensor:
        """Upload words. The tensor and its source are kept until the next mark is seen reached."""
        tensor, source = self._runtime.upload(words)
        line.kept += (tensor, source)
        return tensor


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
