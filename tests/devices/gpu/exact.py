"""Round trips of pages, device to host to device, compared by SHA-256 with the written content.

The expected content is computed on the CPU by code that the device does not use. The target of each
load is overwritten first. Pages that are not moved are checked at the end.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import hicache.models as models
from hicache.core.types import Pages, Tier
from hicache.devices.base import Area, CopyJob, DeviceOptions, Direction
from hicache.devices.cuda import CudaDevice
from hicache.memory.layouts import Bytes, Words, legal

from .base import TRIPS, Figure, Outcome

_MODEL = models.get("llama-3.1-8b")
_TOKENS = 1
_POOL = 1536
_ROUND = 512
_GUARDS = 64
_ALL = (0, _MODEL.layers)


class Tally:
    """The number of pages compared, and a fault for each comparison that differs."""

    def __init__(self) -> None:
        self.compared = 0
        self.faults: list[str] = []

    def compare(self, expected: list[bytes], actual: list[bytes], what: str) -> None:
        self.compared += len(expected)
        wrong = sum(one != other for one, other in zip(expected, actual, strict=True))
        if wrong:
            self.faults.append(f"{what}: {wrong} of {len(expected)} pages differ")


def run() -> Outcome:
    pairs = legal()
    trips = 0
    tally = Tally()
    with ThreadPoolExecutor() as pool:
        for number, (layout, backend) in enumerate(pairs):
            wanted = -(-TRIPS // len(pairs))
            with CudaDevice(
                _MODEL,
                _TOKENS,
                {"full": _POOL},
                {"full": _POOL},
                DeviceOptions(layout=layout, io_backend=backend),
            ) as device:
                draw = np.random.default_rng(number)
                trips += round_trips(device, draw, wanted, tally, pool, f"{layout} {backend}")
    return Outcome(
        [
            Figure("round trips", trips, "pages", TRIPS),
            Figure("comparisons", tally.compared, "pages"),
            Figure("page size", _MODEL.bytes_per_page("full", _TOKENS), "bytes"),
        ],
        tally.faults,
    )


def round_trips(
    device: CudaDevice,
    draw: np.random.Generator,
    wanted: int,
    tally: Tally,
    pool: ThreadPoolExecutor,
    name: str,
) -> int:
    """Makes at least `wanted` round trips and returns their number.

    All work is in stream order; each round is compared when it is done.
    """
    stream = device.stream("exact")
    size = device.arena.pages[Tier.DEVICE]["full"]
    each = (size - _GUARDS) // 2
    guards = {}
    for tier in (Tier.DEVICE, Tier.HOST):
        seeds = draw.integers(0, 1 << 63, _GUARDS).astype(np.uint64)
        guards[tier] = (np.arange(size - _GUARDS, size, dtype=np.int64), seeds)
        device.scribble(stream, Area(tier, "full", guards[tier][0], _ALL), seeds)
    done = 0
    while done < wanted:
        count = min(each, _ROUND, wanted - done)
        shuffled = draw.permutation(size - _GUARDS).astype(np.int64)
        origin, goal = shuffled[:count], shuffled[count : 2 * count]
        host = draw.permutation(size - _GUARDS)[:count].astype(np.int64)
        seeds = draw.integers(0, 1 << 63, count).astype(np.uint64)
        device.scribble(stream, Area(Tier.DEVICE, "full", origin, _ALL), seeds)
        device.copy(stream, CopyJob(Direction.DEVICE_TO_HOST, "full", origin, host, _ALL, name))
        device.scribble(stream, Area(Tier.DEVICE, "full", goal, _ALL), ~seeds)
        for layer in range(_MODEL.layers):
            group = (layer, layer + 1)
            device.copy(stream, CopyJob(Direction.HOST_TO_DEVICE, "full", host, goal, group, name))
        expected = _expected(device, seeds, pool)
        for tier, pages in ((Tier.HOST, host), (Tier.DEVICE, goal)):
            tally.compare(expected, _actual(device, tier, pages, pool), f"{name} {tier.name}")
        done += count
    for tier, (pages, seeds) in guards.items():
        actual = _actual(device, tier, pages, pool)
        tally.compare(_expected(device, seeds, pool), actual, f"{name} beside, {tier.name}")
    return done


def _actual(device: CudaDevice, tier: Tier, pages: Pages, pool: ThreadPoolExecutor) -> list[bytes]:
    seen: list[tuple[Bytes, ...]] = []
    stream = device.stream("exact")
    device.peek(stream, Area(tier, "full", pages, _ALL), seen.append)
    device.synchronize(device.record(stream))
    return _digests(seen[0], len(pages), pool)


def _expected(device: CudaDevice, seeds: Words, pool: ThreadPoolExecutor) -> list[bytes]:
    blocks = tuple(
        one.plan.stamped(seeds, number, range(len(one.plan.pool.layers)))
        for number, one in enumerate(device.arena.pools(Tier.DEVICE, "full"))
    )
    return _digests(blocks, len(seeds), pool)


def _digests(blocks: tuple[Bytes, ...], count: int, pool: ThreadPoolExecutor) -> list[bytes]:
    def digest(page: int) -> bytes:
        sha = hashlib.sha256()
        for block in blocks:
            sha.update(np.ascontiguousarray(block[:, page]).data)
        return sha.digest()

    return list(pool.map(digest, range(count)))
