"""What a check that needs a GPU returns, and the device on which speed is measured:
Llama-3.1-8B, pages of 64 tokens, random pages.

Times come from the device's clock, between an event before and an event after the work. They
include waits of the device for the host. Each check compares its times.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch

import hicache.models as models
from hicache.core.types import Pages
from hicache.devices.base import Access, CopyJob, DeviceEvent, DeviceOptions, Direction, Stream
from hicache.devices.cuda import CudaDevice

MODEL = models.get("llama-3.1-8b")
PAGE_SIZE = 64
POOL_PAGES = 512
MOVED_PAGES = 256
ALL_LAYERS = (0, MODEL.layers)
EACH_LAYER = tuple((layer, layer + 1) for layer in range(MODEL.layers))
LAYOUT = "page_first_direct"
REPEATS = 7  # of each timing; the median counts

_sleep: Any = torch.cuda._sleep


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. least: its target, None if it is only reported."""

    name: str
    value: float
    unit: str = ""
    least: float | None = None

    @property
    def reached(self) -> bool:
        return self.least is None or self.value >= self.least

    def __str__(self) -> str:
        target = "" if self.least is None else f", at least {self.least:g}"
        return f"{self.name}: {self.value:.10g} {self.unit}".rstrip() + target


@dataclass(frozen=True, slots=True)
class Outcome:
    """faults: one line for each error, and the names of targets that were not reached."""

    figures: list[Figure] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return [
            *self.faults,
            *(f"not reached: {figure}" for figure in self.figures if not figure.reached),
        ]


def make(layout: str, backend: str) -> CudaDevice:
    """A device filled with content, so that no copy engine can compress zeros."""
    sizes = {"full": POOL_PAGES}
    device = CudaDevice(
        MODEL,
        PAGE_SIZE,
        sizes,
        sizes,
        DeviceOptions(layout=layout, io_backend=backend, timer=lambda: 0),
    )
    compute = device.stream("compute")
    every = np.arange(POOL_PAGES, dtype=np.int64)
    for part in np.array_split(every, 16):
        device.access(compute, Access("full", part, "w", ALL_LAYERS, "content"))
    device.copy(
        compute, CopyJob(Direction.DEVICE_TO_HOST, "full", every, every, ALL_LAYERS, "content")
    )
    device.synchronize(device.record(compute))
    return device


def small(backend: str, pages: int) -> CudaDevice:
    """A device of few pages of 16 tokens, for checks that measure nothing. Its thread issues every
    copy."""
    sizes = {"full": pages}
    options = DeviceOptions(layout=LAYOUT, io_backend=backend)
    return CudaDevice(MODEL, 16, sizes, sizes, options, few=0)


def scattered(draw: np.random.Generator, count: int = MOVED_PAGES) -> tuple[Pages, Pages]:
    """`count` random pages of the device and of the host, in no order."""
    device, host = (draw.permutation(POOL_PAGES)[:count].astype(np.int64) for _ in range(2))
    return device, host


def transfer(
    device: CudaDevice,
    stream: Stream,
    direction: Direction,
    pages: tuple[Pages, Pages],
    groups: tuple[tuple[int, int], ...],
) -> list[DeviceEvent]:
    """Issues a copy of (device, host) pages, with an event after each group of layers."""
    source, target = pages if direction is Direction.DEVICE_TO_HOST else pages[::-1]
    device_events = []
    for group in groups:
        device.copy(stream, CopyJob(direction, "full", source, target, group, "bench"))
        device_events.append(device.record(stream))
    return device_events


def issued_ms(
    device: CudaDevice, stream: Stream, pages: tuple[Pages, Pages], repeats: int
) -> tuple[float, float]:
    """The caller's time to issue a load layer by layer, and the time until all of it is issued."""

    def once() -> tuple[int, int]:
        device.synchronize(device.record(stream))
        start = time.perf_counter_ns()
        transfer(device, stream, Direction.HOST_TO_DEVICE, pages, EACH_LAYER)
        free = time.perf_counter_ns()
        with on(device, stream):
            return free - start, time.perf_counter_ns() - start

    once()
    free, full = zip(*(once() for _ in range(repeats)), strict=True)
    return median(free) / 1e6, median(full) / 1e6


@contextmanager
def on(device: CudaDevice, stream: Stream) -> Iterator[None]:
    """In the `with` block, torch issues work on the stream, after all that was put on it."""
    with torch.cuda.stream(device._settled(device._line(stream)).stream):
        yield


def hold(device: CudaDevice, stream: Stream, time_ns: int) -> None:
    """Keep the stream busy for at least `time_ns`, longer at a clock below 2 GHz."""
    with on(device, stream):
        _sleep(2 * time_ns)


def timed(device: CudaDevice, stream: Stream, issue: Callable[[], object]) -> int:
    """Nanoseconds of the work that `issue` puts on the stream, which is idle before."""
    device.synchronize(device.record(stream))
    before = device.record(stream)
    issue()
    after = device.record(stream)
    device.synchronize(after)
    return device.reached_ns(after) - device.reached_ns(before)


def repeated(measure: Callable[[], int], repeats: int) -> float:
    """The median of `repeats` measurements after a first one that is discarded."""
    measure()
    return median(measure() for _ in range(repeats))
