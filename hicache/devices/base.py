"""The interface of a device: streams, marks and copies of pages.

`cpu` (real bytes in this process), `cuda` and the simulated device in `sim` implement `Device`. A
device knows pools, page numbers and streams. It does not know nodes or requests, and does not
decide, retry or call the core; see `hicache/runtime/controller`.

The arguments of a call are a record: an `Area` (pages of a component in some layers, on a tier), a
`CopyJob` or a `Touch`. So a new field concerns only the code that uses it, and not the devices that
pass the call on.

All implementations have these semantics (contract suite: tests/contract/test_devices.py). Work on
one stream runs in the order in which it was issued. Between streams, only `wait` gives an order.
`record` marks the work issued on the stream so far. `query` says whether a mark was reached. It may
return False for a while after the mark was reached, but never True before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Literal, NewType, Protocol, TypeAlias, TypeVar

from hicache.core.types import Pages, Tier
from hicache.memory.layouts import Bytes, Words
from hicache.memory.segments import DEFAULT_BYTES

__all__ = [
    "Area",
    "Bytes",
    "Content",
    "CopyJob",
    "Device",
    "DeviceOptions",
    "Direction",
    "Fault",
    "Front",
    "Holdable",
    "Inspectable",
    "InspectableFront",
    "Mark",
    "Peeker",
    "Reader",
    "Stream",
    "Touch",
    "TransferFailed",
    "Words",
]

Stream = NewType("Stream", int)
Mark = NewType("Mark", int)
# Called with the bytes of a peek: one canonical array per pool of the component.
Peeker: TypeAlias = Callable[[tuple[Bytes, ...]], None]


# Called with a component and its pages when a write is issued. Returns one 64-bit seed per page.
Content: TypeAlias = Callable[[str, Pages], Words]
# Called with the result of a read: component, pages, layers, and one canonical array per pool.
Reader: TypeAlias = Callable[[str, Pages, tuple[int, int], tuple[Bytes, ...]], None]


class Direction(Enum):
    """The direction of a copy. The value names the lane."""

    DEVICE_TO_HOST = "d2h"
    HOST_TO_DEVICE = "h2d"

    def __init__(self, lane: str) -> None:
        # The tier that is read and the one that is written; computed once, as every copy needs it.
        down = lane == "d2h"
        self.ends = (Tier.DEVICE, Tier.HOST) if down else (Tier.HOST, Tier.DEVICE)


# Whether the copy of these source pages of a component fails.
Fault: TypeAlias = Callable[[Direction, str, Pages], bool]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceOptions:
    """Options of a device with real bytes.

    layout         of the host tier. io_backend: how pages are copied. tp: number of ranks.
    numa_node      of host memory. segment_bytes: about how many bytes of it are registered at once.
    content        seeds of what a `touch` in mode w writes. By default each page of each write gets
                   a seed of its own.
    reader         called with what a touch in mode r has read: on a worker thread (cpu), or on the
                   caller's thread when a mark after the touch is seen reached (cuda).
    fault          decides whether a copy fails, as on broken hardware: on a worker thread when it
                   runs (cpu), or when it is issued (cuda).
    timer          the time now in nanoseconds, for `reached_ns`. Without it, marks have no times.
    """

    layout: str = "page_first"
    io_backend: str = "kernel"
    tp: int = 1
    numa_node: int | None = None
    segment_bytes: int = DEFAULT_BYTES
    content: Content | None = None
    reader: Reader | None = None
    fault: Fault | None = None
    timer: Callable[[], int] | None = None


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
class Touch:
    """A read ("r") or write ("w") of device pages by the model itself, as in a forward pass."""

    component: str
    pages: Pages
    mode: Literal["r", "w"]
    layers: tuple[int, int]
    why: str

    @property
    def area(self) -> Area:
        return Area(Tier.DEVICE, self.component, self.pages, self.layers)


class TransferFailed(Exception):
    """A copy did not happen. The controller turns it into a reply with ok=False."""


class Device(Protocol):
    """One accelerator and its pinned host memory."""

    @property
    def layers(self) -> int:
        """Number of layers of the model. A load is cut by layers; layer 0 is needed first."""

    def stream(self, name: str) -> Stream:
        """The stream with this name, created at first use."""

    def record(self, stream: Stream) -> Mark:
        """A new mark after all work issued on the stream so far."""

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Later work on the stream starts only after the mark. Does not block the caller."""

    def query(self, mark: Mark) -> bool:
        """Whether the host may rely on the mark. Never blocks."""

    def failed(self, mark: Mark) -> bool:
        """Whether work between the previous mark of the stream and this one failed.

        The mark must have been reached, but the host need not have seen that yet.
        """

    def copy(self, stream: Stream, job: CopyJob) -> None:
        """Queue a copy."""

    def touch(self, stream: Stream, touch: Touch) -> None:
        """Queue a read or write by the model."""

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        """SHA-256 of the page's bytes over all pools and layers. For tests and checks only."""


class Inspectable(Device, Protocol):
    """A device with real bytes. Checks can read and overwrite them, in the order of a stream."""

    def scribble(self, stream: Stream, area: Area, seeds: Words) -> None:
        """Queue a write of bytes that the seeds determine, one seed per page, on either tier."""

    def peek(self, stream: Stream, area: Area, then: Peeker) -> None:
        """Queue a read of the pages' bytes. `then` is called with a copy, on any thread. When the
        host has seen a later mark of the stream, it was called or is about to be called."""


class Holdable(Inspectable, Protocol):
    """A device whose streams can be kept busy, to force an order of work that is otherwise rare."""

    def hold(self, stream: Stream, time_ns: int) -> None:
        """Keep the stream busy for about `time_ns`. Does not block the caller."""


D = TypeVar("D", bound=Device)
InspectableD = TypeVar("InspectableD", bound=Inspectable)


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

    def record(self, stream: Stream) -> Mark:
        return self.inner.record(stream)

    def wait(self, stream: Stream, mark: Mark) -> None:
        self.inner.wait(stream, mark)

    def query(self, mark: Mark) -> bool:
        return self.inner.query(mark)

    def failed(self, mark: Mark) -> bool:
        return self.inner.failed(mark)

    def copy(self, stream: Stream, job: CopyJob) -> None:
        self.inner.copy(stream, job)

    def touch(self, stream: Stream, touch: Touch) -> None:
        self.inner.touch(stream, touch)

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        return self.inner.digest(tier, component, page)


class InspectableFront(Front[InspectableD]):
    """A `Front` for a device with real bytes."""

    def scribble(self, stream: Stream, area: Area, seeds: Words) -> None:
        self.inner.scribble(stream, area, seeds)

    def peek(self, stream: Stream, area: Area, then: Peeker) -> None:
        self.inner.peek(stream, area, then)
