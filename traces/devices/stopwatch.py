"""A device in front of another one that times every copy, on the device's own clock.

Records a mark before and after each copy and reads their times. Works on any device that knows when
a mark was reached: the CPU and CUDA devices on the wall clock, the simulated device on virtual
time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from hicache.devices.base import CopyJob, Device, Direction, Front, Inspectable, Mark, Stream
from hicache.models import ModelDescription
from sim.machine import group_bytes

# A model, tokens of a page, and the pages of each component on device and on host.
Pools: TypeAlias = tuple[ModelDescription, int, dict[str, int], dict[str, int]]
_COLLECT = 1024  # open copies; a device forgets the times of marks that nobody reads


def layer_bytes(model: ModelDescription, page_size: int) -> dict[str, tuple[int, ...]]:
    """Bytes of one page, for each component and each layer of the model."""
    return {
        component: group_bytes(model, component, page_size, model.layers, 1)
        for component in model.components
    }


class TimedDevice(Device, Protocol):
    """A device that knows when a mark was reached, in integer nanoseconds of its clock."""

    def reached_ns(self, mark: Mark) -> int: ...


class TimedInspectable(TimedDevice, Inspectable, Protocol):
    """A timed device with real bytes."""


class Timing(NamedTuple):
    """One copy. number: in order of issue. start_ns, end_ns: on the device's clock."""

    number: int
    direction: Direction
    component: str
    pages: int
    layers: tuple[int, int]
    bytes: int
    why: str
    start_ns: int
    end_ns: int
    failed: bool

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


class Stopwatch(Front[TimedDevice]):
    """Times the copies of the inner device. timings: by number, of copies that have ended.

    page_bytes: for each component, bytes of a page in each of the device's layers.
    """

    def __init__(self, inner: TimedDevice, page_bytes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__(inner)
        self._page_bytes = page_bytes
        self._own: dict[Stream, list[Mark]] = {}
        self._behind: dict[Mark, tuple[Mark, ...]] = {}
        self._open: deque[tuple[Timing, Mark, Mark]] = deque()
        self._copies = 0
        self._collected_at = _COLLECT
        self.timings: dict[int, Timing] = {}

    def record(self, stream: Stream) -> Mark:
        """Remembers the stopwatch's marks before it; a failure of one of them is its failure."""
        own = self._own.pop(stream, [])
        mark = self.inner.record(stream)
        if own:
            self._behind[mark] = tuple(own)
        return mark

    def failed(self, mark: Mark) -> bool:
        inner = self.inner
        return inner.failed(mark) or any(inner.failed(one) for one in self._behind.get(mark, ()))

    def copy(self, stream: Stream, job: CopyJob) -> None:
        pages = len(job.source)
        if not pages:
            return
        size = pages * sum(self._page_bytes[job.component][slice(*job.layers)])
        if not size:  # the component has no pool in these layers
            self.inner.copy(stream, job)
            return
        number = self._copies
        self._copies += 1
        before = self.inner.record(stream)
        self.inner.copy(stream, job)
        after = self.inner.record(stream)
        self._own.setdefault(stream, []).extend((before, after))
        what = (job.direction, job.component, pages, job.layers, size, job.why)
        timing = Timing(number, *what, start_ns=0, end_ns=0, failed=False)
        self._open.append((timing, before, after))
        if len(self._open) >= self._collected_at:
            self.collect()
            self._collected_at = len(self._open) + _COLLECT

    def collect(self) -> None:
        """Reads the times of every copy that has ended."""
        for _ in range(len(self._open)):
            timing, before, after = self._open.popleft()
            if not self.inner.query(after):
                self._open.append((timing, before, after))
                continue
            self.timings[timing.number] = timing._replace(
                start_ns=self.inner.reached_ns(before),
                end_ns=self.inner.reached_ns(after),
                failed=self.inner.failed(after),
            )

    def settle(self, idle: Callable[[], None]) -> list[Timing]:
        """All timings in order of issue, after the last copy has ended. idle: called to wait."""
        self.collect()
        while self._open:
            idle()
            self.collect()
        return [self.timings[number] for number in sorted(self.timings)]
