"""Byte checks in a running system: SHA-256 of sampled pages on both sides of every copy.

`Samples` is a device in front of another device. It passes every call on, reads sampled pages
before and after each copy, and counts pages and mismatches. It does not know how bytes are read,
see `peek` of the device, and does not act on a mismatch.

    page on source -- SHA-256 --+-- equal? -- SHA-256 -- page on target        each copy, each pool
    page on host after its backup --- equal? --- page on host before its load  between two copies

Whether a page is sampled is decided when it is backed up, from its host page number and the number
of times that page was written. Its loads use the same decision, so at any rate the second
comparison has both sides. A sample costs the stream one copy of the bytes; a separate thread hashes
them. If this thread is too slow, it blocks the thread that delivers the bytes: the worker of the
stream on the CPU device, and the caller of `query` or `record` on CUDA. So a high rate costs time
there.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Queue
from typing import NamedTuple, TypeAlias

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.devices.base import (
    Area,
    Bytes,
    CopyJob,
    Direction,
    Inspectable,
    InspectableFront,
    Mark,
    Stream,
)

# For each pool: its name and the layers of the model that have it.
PoolLayers: TypeAlias = Sequence[tuple[str, tuple[int, ...]]]
_BACKLOG = 64
_NAMED = 8


class Row(NamedTuple):
    """Counts for one pool and one direction. copied: pages that copies moved. pages, bytes: those
    that were sampled. links: loaded pages that were compared with their backup. mismatches: of
    either comparison. A page that is copied in several layer groups counts once per group."""

    pool: str
    direction: Direction
    copied: int
    pages: int
    bytes: int
    links: int
    mismatches: int


class Report(NamedTuple):
    """rate: share of pages that is sampled. failed: sampled pages of copies that failed, which are
    not in the rows. first: messages for the first mismatches."""

    rate: float
    rows: tuple[Row, ...]
    failed: int
    first: tuple[str, ...]

    @property
    def mismatches(self) -> int:
        return sum(row.mismatches for row in self.rows)


@dataclass(slots=True)
class _Count:
    copied: int = 0
    pages: int = 0
    bytes: int = 0
    links: int = 0
    mismatches: int = 0


@dataclass(slots=True, eq=False)
class _Sample:
    """The sampled pages of one copy. host: their page numbers on host. generations: how often each
    was written. sizes: bytes of a page, by pool. digests: [tier][pool, layer, position]."""

    direction: Direction
    component: str
    host: Pages
    generations: Pages
    layers: tuple[int, int]
    why: str
    sizes: dict[int, int] = field(default_factory=dict)
    digests: dict[Tier, dict[tuple[int, int, int], bytes]] = field(default_factory=dict)


class Samples(InspectableFront[Inspectable]):
    """Implements `Inspectable`. `close` it, or use it in a `with` statement, to end its thread."""

    def __init__(
        self,
        inner: Inspectable,
        pools: Mapping[str, PoolLayers],
        rate: float,
        seed: int = 0,
    ) -> None:
        """pools: for each component, in the device's order. rate: share of pages, 0 to 1.

        Raises CallerError for any other rate."""
        if not 0 <= rate <= 1:
            raise CallerError(f"sample: expected a rate from 0 to 1, found {rate}")
        super().__init__(inner)
        self.rate = rate
        self._pools = {name: tuple(found) for name, found in pools.items()}
        self._limit = int(rate * (1 << 32))
        self._seed = np.uint64(seed)
        self._generations: dict[str, Pages] = {}
        self._issued: dict[Stream, list[_Sample]] = {}
        # For each stream that copies: the marks not known to be reached, each with the samples
        # that were issued before it.
        self._marked: dict[Stream, deque[tuple[Mark, list[_Sample]]]] = {}
        self._streams: dict[Mark, Stream] = {}
        self._over: deque[_Sample] = deque()
        self._left: dict[tuple[str, int], tuple[int, dict[tuple[int, int], bytes]]] = {}
        self._counts: dict[tuple[str, Direction], _Count] = {}
        self._failed = 0
        self._first: list[str] = []
        self._crash: list[Exception] = []
        self._closed = False
        self._queue: Queue[tuple[_Sample, Tier, tuple[Bytes, ...]] | None] = Queue(_BACKLOG)
        self._worker = threading.Thread(target=self._hash, name="samples", daemon=True)
        self._worker.start()

    def record(self, stream: Stream) -> Mark:
        mark = self.inner.record(stream)
        if stream in self._issued:
            issued, self._issued[stream] = self._issued[stream], []
            self._marked.setdefault(stream, deque()).append((mark, issued))
            self._streams[mark] = stream
        return mark

    def query(self, mark: Mark) -> bool:
        reached = self.inner.query(mark)
        if reached and mark in self._streams:
            self._end(self._marked[self._streams[mark]], mark)
            self._settle()
        return reached

    def copy(self, stream: Stream, job: CopyJob) -> None:
        near, far = job.near, job.far
        host = (far if far.tier is Tier.HOST else near).pages
        for name, _ in self._pools[job.component]:
            self._count(name, job.direction).copied += len(host)
        chosen = self._drawn(job.component, host, far.tier is Tier.HOST)
        if not len(chosen):
            self.inner.copy(stream, job)
            self._issued.setdefault(stream, [])
            return
        drawn = host[chosen]
        sample = _Sample(
            job.direction,
            job.component,
            drawn,
            self._generations[job.component][drawn],
            job.layers,
            job.why,
        )
        self._look(stream, near, chosen, sample)
        self.inner.copy(stream, job)
        self._look(stream, far, chosen, sample)
        self._issued.setdefault(stream, []).append(sample)

    def report(self) -> Report:
        """The counts for all copies before marks that the caller saw reached. Blocks until their
        samples are hashed."""
        self._queue.join()
        self._settle()
        if self._crash:
            raise self._crash[0]
        rows = tuple(
            Row(pool, way, one.copied, one.pages, one.bytes, one.links, one.mismatches)
            for (pool, way), one in self._counts.items()
        )
        return Report(self.rate, rows, self._failed, tuple(self._first))

    def close(self) -> None:
        """End the thread. Later samples are not counted. Does not close the device."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._worker.join()

    def _drawn(self, component: str, host: Pages, written: bool) -> Pages:
        """Positions of the pages that are sampled. A page is drawn again when it is written on
        host."""
        if not len(host):
            return host
        known = self._generations.get(component)
        room = int(host.max()) + 1
        if known is None or len(known) < room:
            more = np.zeros(max(room, 2 * (0 if known is None else len(known))), dtype=np.int64)
            if known is not None:
                more[: len(known)] = known
            known = self._generations[component] = more
        if written:
            known[host] += 1
        words = host.astype(np.uint64) << np.uint64(32) ^ known[host].astype(np.uint64)
        words = (words ^ self._seed) * np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.flatnonzero((words >> np.uint64(32)) < np.uint64(self._limit))

    def _end(self, marked: deque[tuple[Mark, list[_Sample]]], mark: Mark) -> None:
        """A mark was reached, and with it all earlier marks on its stream."""
        while marked and marked[0][0] <= mark:
            before, ended = marked.popleft()
            del self._streams[before]
            if not ended:
                continue
            if self.inner.failed(before):
                self._failed += sum(len(sample.host) for sample in ended)
            else:
                self._over += ended

    def _look(self, stream: Stream, area: Area, chosen: Pages, sample: _Sample) -> None:
        """Read the pages at these positions, on one side of a copy."""
        some = replace(area, pages=area.pages[chosen])
        self.inner.peek(stream, some, partial(self._looked, sample, area.tier))

    def _looked(self, sample: _Sample, tier: Tier, found: tuple[Bytes, ...]) -> None:
        if not self._closed:
            self._queue.put((sample, tier, found))

    def _hash(self) -> None:
        """Hash samples until the thread is told to end. Runs on the thread."""
        while (job := self._queue.get()) is not None:
            sample, tier, found = job
            try:
                sample.sizes = {at: block[:, :1].nbytes for at, block in enumerate(found)}
                sample.digests[tier] = self._digests(sample, found)
            except Exception as crash:
                self._crash.append(crash)
            self._queue.task_done()
        self._queue.task_done()

    def _digests(
        self, sample: _Sample, found: tuple[Bytes, ...]
    ) -> dict[tuple[int, int, int], bytes]:
        digests = {}
        for pool, block in enumerate(found):
            first, last = sample.layers
            own = [
                layer for layer in self._pools[sample.component][pool][1] if first <= layer < last
            ]
            for depth, layer in enumerate(own):
                for position in range(block.shape[1]):
                    page = np.ascontiguousarray(block[depth, position])
                    digests[pool, layer, position] = hashlib.sha256(page.data).digest()
        return digests

    def _settle(self) -> None:
        """Count samples in the order in which their copies ended, as far as both sides are
        hashed."""
        while self._over and len(self._over[0].digests) == 2:
            self._tally(self._over.popleft())

    def _tally(self, sample: _Sample) -> None:
        near, far = sample.direction.ends
        source, target = sample.digests[near], sample.digests[far]
        backup = far is Tier.HOST
        wrong: dict[tuple[int, int], str] = {}
        linked: dict[tuple[int, int], None] = {}
        for place, digest in source.items():
            pool, layer, position = place
            if digest != target[place]:
                wrong.setdefault((pool, position), f"layer {layer} differs from its source")
            page, generation = (int(of[position]) for of in (sample.host, sample.generations))
            if backup:
                left = self._left.get((sample.component, page))
                if left is None or left[0] != generation:
                    left = self._left[sample.component, page] = (generation, {})
                left[1][pool, layer] = target[place]
                continue
            left = self._left.get((sample.component, page))
            before = left[1].get((pool, layer)) if left and left[0] == generation else None
            if before is not None:
                linked[pool, position] = None
                if before != digest:
                    wrong.setdefault((pool, position), f"layer {layer} changed since its backup")
        for number, (name, _) in enumerate(self._pools[sample.component]):
            count = self._count(name, sample.direction)
            if not sample.sizes[number]:
                continue
            count.pages += len(sample.host)
            count.bytes += len(sample.host) * sample.sizes[number]
            count.links += sum(pool == number for pool, _ in linked)
            count.mismatches += sum(pool == number for pool, _ in wrong)
        for (pool, position), what in wrong.items():
            if len(self._first) < _NAMED:
                self._first.append(
                    f"{sample.why}: {sample.direction.value}, pool "
                    f"{self._pools[sample.component][pool][0]}, host page "
                    f"{int(sample.host[position])}: {what}"
                )

    def _count(self, pool: str, direction: Direction) -> _Count:
        return self._counts.setdefault((pool, direction), _Count())

    def __enter__(self) -> Samples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
