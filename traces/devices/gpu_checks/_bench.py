"""The device that speed is measured on, and how: Llama-3.1-8B, pages of 64 tokens, at random.

Times are of the device's own clock, between a mark before and a mark behind, and include what the
device waits for the host to issue. Must not live here: what is compared with what.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np

import hicache.models as models
from hicache.core.types import Pages, Tier
from hicache.devices import cuda
from hicache.devices.base import CopyJob, DeviceOptions, Direction, Mark, Stream, Touch
from hicache.devices.cuda import CudaDevice

BLOCKS = cuda.BLOCKS
MODEL = models.get("llama-3.1-8b")
PAGE_SIZE = 64
POOL_PAGES = 512
MOVED = 256
PAGE_BYTES = MODEL.bytes_per_page("full", PAGE_SIZE)
ALL = (0, MODEL.layers)
EACH = tuple((layer, layer + 1) for layer in range(MODEL.layers))
LAYOUT = "page_first_direct"


def make(layout: str, backend: str, blocks: int = BLOCKS) -> CudaDevice:
    """Filled with content, so that no engine finds zeros to compress."""
    sizes = {"full": POOL_PAGES}
    device = CudaDevice(
        MODEL,
        PAGE_SIZE,
        sizes,
        sizes,
        DeviceOptions(layout=layout, io_backend=backend, timer=lambda: 0),
        blocks=blocks,
    )
    compute = device.stream("compute")
    every = np.arange(POOL_PAGES, dtype=np.int64)
    for part in np.array_split(every, 16):
        device.touch(compute, Touch("full", part, "w", ALL, "content"))
    device.copy(compute, CopyJob(Direction.DEVICE_TO_HOST, "full", every, every, ALL, "content"))
    device.synchronize(device.record(compute))
    return device


def scattered(draw: np.random.Generator, count: int = MOVED) -> tuple[Pages, Pages]:
    """Pages of the device and of the host, at random and in no order."""
    device, host = (draw.permutation(POOL_PAGES)[:count].astype(np.int64) for _ in range(2))
    return device, host


def transfer(
    device: CudaDevice,
    stream: Stream,
    direction: Direction,
    pages: tuple[Pages, Pages],
    groups: tuple[tuple[int, int], ...],
) -> list[Mark]:
    """Issue a copy of (device, host) pages, a mark behind each group of layers."""
    source, target = pages if direction is Direction.DEVICE_TO_HOST else pages[::-1]
    marks = []
    for group in groups:
        device.copy(stream, CopyJob(direction, "full", source, target, group, "bench"))
        marks.append(device.record(stream))
    return marks


def groups_of(direction: Direction) -> tuple[tuple[int, int], ...]:
    """As the transfer controller issues them: a backup at once, a load layer by layer."""
    return (ALL,) if direction is Direction.DEVICE_TO_HOST else EACH


def timed(device: CudaDevice, stream: Stream, issue: Callable[[], object]) -> int:
    """Nanoseconds of what `issue` puts on the stream, the stream being idle before."""
    device.synchronize(device.record(stream))
    before = device.record(stream)
    issue()
    after = device.record(stream)
    device.synchronize(after)
    return device.reached_ns(after) - device.reached_ns(before)


def repeated(measure: Callable[[], int], repeats: int) -> float:
    """The median, after one measurement that is thrown away."""
    measure()
    return median(measure() for _ in range(repeats))


def large_copy(device: CudaDevice, direction: Direction, repeats: int) -> float:
    """Nanoseconds of one copy of as many bytes, contiguous and pinned: what the bus can do."""
    stream = device.stream("large")
    tiers = [Tier.DEVICE, Tier.HOST]
    if direction is Direction.HOST_TO_DEVICE:
        tiers.reverse()
    source, target = (
        device.arena.pools(tier, "full")[0].flat[: MOVED * PAGE_BYTES] for tier in tiers
    )

    def issue() -> None:
        with device.on(stream):
            target.copy_(source, non_blocking=True)

    return repeated(lambda: timed(device, stream, issue), repeats)
