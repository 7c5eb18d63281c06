"""The interface of a device: streams, events and copies of pages; and the base of real devices.

`cpu` (real bytes in this process), `cuda` and the simulated device in `sim` implement `Device`. A
device knows pools, page numbers and streams, and no nodes or requests. The arguments of a call are
a record: an `Area` (pages of a component in some layers, on a tier), a `CopyJob` or a `Access`.

All implementations have these semantics (contract suite: tests/contract/test_devices.py). Work on
one stream runs in the order in which it was issued. Between streams, only `wait` gives an order.
`record` marks the work issued on the stream so far. `query` says whether an event was reached. It
may return False for a while after the event was reached, but never True before.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Generic, Literal, NewType, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.memory.host import DEFAULT_BYTES, try_all
from hicache.memory.layouts import Bytes, Words
from hicache.memory.pools import PoolTable

__all__ = ["Bytes", "Words"]

Stream = NewType("Stream", int)
DeviceEvent = NewType("DeviceEvent", int)
# Called with the bytes that a read found: one canonical array per pool of the component.
OnRead: TypeAlias = Callable[[tuple[Bytes, ...]], None]


# Called with a component and its pages when a write is issued. Returns one 64-bit seed per page.
Content: TypeAlias = Callable[[str, Pages], Words]


class Direction(Enum):
    """The direction of a copy. The value names the transfer queue."""

    DEVICE_TO_HOST = "d2h"
    HOST_TO_DEVICE = "h2d"

    def __init__(self, transfer_queue: str) -> None:
        # The tier that is read and the one that is written; computed once, as every copy needs it.
        down = transfer_queue == "d2h"
        self.ends = (Tier.DEVICE, Tier.HOST) if down else (Tier.HOST, Tier.DEVICE)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceOptions:
    """Options of a device with real bytes.

    layout         of the host tier. io_backend: how pages are copied. tp: number of ranks.
    segment_bytes  about how many bytes of host memory are registered at once.
    content        seeds of what an `access` in mode w writes. By default each page of each write
                   gets a seed of its own.
    timer          the time now in nanoseconds, for `reached_ns`. Without it, events have no times.
    """

    layout: str = "page_first"
    io_backend: str = "kernel"
    tp: int = 1
    segment_bytes: int = DEFAULT_BYTES
    content: Content | None = None
    timer: Callable[[], int] | None = None

    @property
    def of_arena(self) -> dict[str, Any]:
        """The options of an arena."""
        return {
            "layout": self.layout,
            "backend": self.io_backend,
            "tp": self.tp,
            "segment_bytes": self.segment_bytes,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """Pages of a component on a tier, in layers [first, last), in all pools of the component."""

    tier: Tier
    component: str
    pages: Pages
    layers: tuple[int, int]

    @property
    def place(self) -> tuple[Tier, str]:
        """The tier and component to which the page numbers belong."""
        return self.tier, self.component


@dataclass(frozen=True, slots=True, eq=False)
class CopyJob:
    """Page `source[i]` of one tier to `target[i]` of the other, for every pool of the component.

    layers: [first, last). why: the reason, for error messages.
    """

    direction: Direction
    component: str
    source: Pages
    target: Pages
    layers: tuple[int, int]
    why: str

    @property
    def near(self) -> Area:
        """The pages that are read."""
        return Area(self.direction.ends[0], self.component, self.source, self.layers)

    @property
    def far(self) -> Area:
        """The pages that are written."""
        return Area(self.direction.ends[1], self.component, self.target, self.layers)


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A read ("r") or write ("w") of device pages by the model itself, as in a forward pass."""

    component: str
    pages: Pages
    mode: Literal["r", "w"]
    layers: tuple[int, int]
    why: str

    @property
    def area(self) -> Area:
        return Area(Tier.DEVICE, self.component, self.pages, self.layers)


class Device(Protocol):
    """One accelerator and its pinned host memory."""

    @property
    def layers(self) -> int:
        """Number of layers of the model. A load is cut by layers; layer 0 is needed first."""

    def stream(self, name: str) -> Stream:
        """The stream with this name, created at first use."""

    def record(self, stream: Stream) -> DeviceEvent:
        """A new event after all work issued on the stream so far."""

    def wait(self, stream: Stream, device_event: DeviceEvent) -> None:
        """Later work on the stream starts only after the event; the caller goes on."""

    def query(self, device_event: DeviceEvent) -> bool:
        """Whether the host may rely on the event. Never blocks."""

    def failed(self, device_event: DeviceEvent) -> bool:
        """Whether work between the previous event of the stream and this one failed.

        The event must have been reached, but the host need not have seen that yet.
        """

    def copy(self, stream: Stream, job: CopyJob) -> None:
        """Queue a copy."""

    def access(self, stream: Stream, access: Access) -> None:
        """Queue a read or write by the model."""

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        """SHA-256 of the page's bytes over all pools and layers. For tests and checks only."""

    def write_pattern(self, stream: Stream, area: Area, seeds: Words) -> None:
        """Queue a write of bytes that the seeds determine, one seed per page, on either tier."""

    def read(self, stream: Stream, area: Area, then: OnRead) -> None:
        """Queue a read of the pages' bytes. `then` is called with a copy, on any thread. When the
        host has seen a later event of the stream, it was called or is about to be called."""


D = TypeVar("D", bound=Device)


class Front(Generic[D]):
    """A device in front of another device, to which it passes every call on. Subclasses override
    the calls that they watch or change."""

    def __init__(self, inner: D) -> None:
        self.inner = inner

    @property
    def layers(self) -> int:
        return self.inner.layers

    def stream(self, name: str) -> Stream:
        return self.inner.stream(name)

    def record(self, stream: Stream) -> DeviceEvent:
        return self.inner.record(stream)

    def wait(self, stream: Stream, device_event: DeviceEvent) -> None:
        self.inner.wait(stream, device_event)

    def query(self, device_event: DeviceEvent) -> bool:
        return self.inner.query(device_event)

    def failed(self, device_event: DeviceEvent) -> bool:
        return self.inner.failed(device_event)

    def copy(self, stream: Stream, job: CopyJob) -> None:
        self.inner.copy(stream, job)

    def access(self, stream: Stream, access: Access) -> None:
        self.inner.access(stream, access)

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        return self.inner.digest(tier, component, page)

    def write_pattern(self, stream: Stream, area: Area, seeds: Words) -> None:
        self.inner.write_pattern(stream, area, seeds)

    def read(self, stream: Stream, area: Area, then: OnRead) -> None:
        self.inner.read(stream, area, then)


MOST = 1 << 16  # times of events that are kept
L = TypeVar("L")


class Streamed(ABC, Generic[L]):
    """The calls of `Device` for a device with real bytes, except those for events and digests.

    Before work is put on a stream, its pages and layers are checked, and that the device is open.
    L: the device's record of one stream, called its line. table: its pools on both tiers.
    """

    def __init__(self, table: PoolTable, options: DeviceOptions) -> None:
        self.table = table
        self._layers = table.model.layers
        self._content = options.content or self._fresh
        self._written = 0
        # the last pages by direction and component: the layer groups of a load have the same arrays
        self._checked: dict[tuple[Direction, str], tuple[Pages, Pages]] = {}
        self._timed = options.timer is not None
        self._reached_ns: dict[
            int, tuple[DeviceEvent, int]
        ] = {}  # by an event's number modulo MOST
        self._by_name: dict[str, Stream] = {}
        self._lines: list[L] = []
        self._closed = False

    @property
    def layers(self) -> int:
        return self._layers

    def stream(self, name: str) -> Stream:
        self._check_open()
        if name not in self._by_name:
            self._by_name[name] = Stream(len(self._lines))
            self._lines.append(self._make_line(name))
        return self._by_name[name]

    @abstractmethod
    def query(self, device_event: DeviceEvent) -> bool: ...

    def reached_ns(self, device_event: DeviceEvent) -> int:
        """When the event was reached, in nanoseconds of the device's timer. Raises CallerError
        without a timer, and for an event that was not reached or is not among the latest."""
        reached, at_ns = DeviceEvent(-1), 0
        if self._timed and self.query(device_event):
            reached, at_ns = self._reached_ns.get(device_event % MOST, (reached, at_ns))
        if reached != device_event:
            raise CallerError(
                f"reached_ns: expected a device with a timer and one of its {MOST} latest events, "
                f"reached, found {device_event}"
            )
        return at_ns

    def failed(self, device_event: DeviceEvent) -> bool:
        """False: an error of real memory is a defect, and ends the device."""
        if not self.query(device_event):
            raise CallerError(
                f"failed: expected an event that was reached, found {device_event}; query first"
            )
        return False

    def copy(self, stream: Stream, job: CopyJob) -> None:
        line = self._line(stream)
        self._check_copy(job)
        self._put_copy(line, job)

    def access(self, stream: Stream, access: Access) -> None:
        line, area = self._line(stream), access.area
        self._check_area(area)
        if access.mode == "w":
            self._put_write(line, area, self._seeds(access))
        else:
            self._put_read(line, area)

    def write_pattern(self, stream: Stream, area: Area, seeds: Words) -> None:
        line = self._line(stream)
        self._check_area(area)
        self._put_write(line, area, seeds)

    def read(self, stream: Stream, area: Area, then: OnRead) -> None:
        line = self._line(stream)
        self._check_area(area)
        self._put_look(line, area, then)

    def close(self) -> None:
        """Wait for all issued work and release the memory. Any later call but `digest` raises
        CallerError."""
        if self._closed:
            return
        self._closed = True
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the device. An error of the block stays the one that is raised."""
        try_all(self.close, first=error)

    @abstractmethod
    def _make_line(self, name: str) -> L:
        """Create the line of a new stream."""

    @abstractmethod
    def _put_copy(self, line: L, job: CopyJob) -> None: ...

    @abstractmethod
    def _put_write(self, line: L, area: Area, seeds: Words) -> None: ...

    @abstractmethod
    def _put_look(self, line: L, area: Area, then: OnRead) -> None: ...

    @abstractmethod
    def _put_read(self, line: L, area: Area) -> None:
        """Queue a read by the model whose result is not wanted."""

    @abstractmethod
    def _end(self) -> None:
        """Wait for all issued work and release everything. Called once."""

    def _line(self, stream: Stream) -> L:
        self._check_open()
        if not 0 <= stream < len(self._lines):
            raise CallerError(f"stream: expected one that this device made, found {stream}")
        return self._lines[stream]

    def _check_open(self) -> None:
        if self._closed:
            raise CallerError("device: expected an open one, found it closed")

    def _check_area(self, area: Area) -> None:
        """Raises CallerError for pages or layers that do not exist."""
        self.table.check_pages(area.tier, area.component, area.pages)
        self._check_layers(*area.layers)

    def _check_layers(self, first: int, last: int) -> None:
        most = self.table.model.layers
        if not 0 <= first <= last <= most:
            raise CallerError(
                f"layers: expected a range within 0 to {most}, found {first} to {last}"
            )

    def _check_copy(self, job: CopyJob) -> None:
        """Raises CallerError unless there are as many target pages as source pages, all of them
        exist, and no page is a target twice.

        The order of the copies of one job is not defined, so of two copies to one page either
        could be the last. Arrays of pages are never changed, so they are looked at once.
        """
        place = job.direction, job.component
        source, target = self._checked.get(place, (None, None))
        if source is job.source and target is job.target:
            self._check_layers(*job.layers)
            return
        if len(job.source) != len(job.target):
            raise CallerError(
                f"copy for {job.why}: expected as many targets as sources, "
                f"found {len(job.source)} and {len(job.target)}"
            )
        for area in (job.near, job.far):
            self._check_area(area)
        targets = np.sort(job.target)
        twice = np.flatnonzero(targets[1:] == targets[:-1])
        if len(twice):
            raise CallerError(
                f"copy for {job.why}: expected every target page once, found page "
                f"{targets[twice[0]]} of {job.component} twice; leave one of the two copies out"
            )
        self._checked[place] = job.source, job.target

    def _seeds(self, access: Access) -> Words:
        """The seeds of what the model writes, uint64, one per page. Raises CallerError if the
        content gives another number of seeds."""
        wanted = len(access.pages)
        seeds = np.array(self._content(access.component, access.pages), dtype=np.uint64)
        if len(seeds) != wanted:
            raise CallerError(f"{access.why}: expected {wanted} seeds, found {len(seeds)}")
        return seeds

    def _fresh(self, component: str, pages: Pages) -> Words:
        first = self._written
        self._written += len(pages)
        return np.arange(first, self._written, dtype=np.uint64)
