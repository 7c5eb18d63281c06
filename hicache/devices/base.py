"""The seam between the transfer controller and whatever moves bytes: streams, events, copies.

`cpu` (real bytes in this process), the simulated device in `sim`, and later `cuda` implement
`Device`. A device knows pools, page numbers and streams. It does not know nodes, requests or why;
it does not decide, retry, or call the core.

What a call is about is a record: an `Area` (pages of a component in some layers, on a tier), a
`CopyJob`, a `Touch`. A field is added there and read where it is used; who passes a call on names
none.

Semantics that every implementation shares (contract suite: tests/contract/test_devices.py):
work on one stream happens in the order it was issued; across streams only `wait` orders; `record`
marks the work issued on the stream so far; `query` says whether a mark was reached and may say
False for a while after it was, but never True before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Literal, NewType, Protocol, TypeAlias, TypeVar

from hicache.core.types import Pages, Tier
from hicache.memory.layouts import Bytes
from hicache.memory.segments import DEFAULT_BYTES
from hicache.memory.stamp import Words

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
# What a peek is answered with: one canonical array per pool of the component.
Peeker: TypeAlias = Callable[[tuple[Bytes, ...]], None]


# Asked of a component's pages when a write is issued: one 64-bit seed per page.
Content: TypeAlias = Callable[[str, Pages], Words]
# Shown what a read found: component, pages, layers, and one canonical array per pool.
Reader: TypeAlias = Callable[[str, Pages, tuple[int, int], tuple[Bytes, ...]], None]


class Direction(Enum):
    """Which way a copy goes. The value names the lane."""

    DEVICE_TO_HOST = "d2h"
    HOST_TO_DEVICE = "h2d"

    def __init__(self, lane: str) -> None:
        # The tier that is read and the one that is written; made once, as every copy asks.
        down = lane == "d2h"
        self.ends = (Tier.DEVICE, Tier.HOST) if down else (Tier.HOST, Tier.DEVICE)


# Whether the copy of these source pages of a component fails.
Fault: TypeAlias = Callable[[Direction, str, Pages], bool]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceOptions:
    """How a device with real bytes is set up.

    layout         of the host tier. io_backend: how pages are copied. tp: ranks.
    numa_node      of host memory, which is registered in segments of about segment_bytes.
    content        seeds of what a `touch` in mode w writes; by default each write has its own.
    reader         sees what a touch in mode r read: on a worker thread (cpu), or in the caller's
                   when a mark behind the touch is seen reached (cuda).
    fault          says of a copy whether it fails as broken hardware would: on a worker thread
                   when it runs (cpu), or when it is issued (cuda).
    timer          nanoseconds now, for `reached_ns`; without one, marks have no times.
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
    """Pages of a component on a tier, in layers [first, last), of all the component's pools."""

    tier: Tier
    component: str
    pages: Pages
    layers: tuple[int, int]

    @property
    def place(self) -> tuple[Tier, str]:
        """Whose the page numbers are."""
        return self.tier, self.component


@dataclass(frozen=True, slots=True, eq=False)
class CopyJob:
    """Page `source[i]` of one tier to `target[i]` of the other, for every pool of the component.

    layers: [first, last). why: for whoever reads an error.
    """

    direction: Direction
    component: str
    source: Pages
    target: Pages
    layers: tuple[int, int]
    why: str

    @property
    def near(self) -> Area:
        """What is read."""
        return Area(self.direction.ends[0], self.component, self.source, self.layers)

    @property
    def far(self) -> Area:
        """What is written."""
        return Area(self.direction.ends[1], self.component, self.target, self.layers)


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """The model's own read ("r") or write ("w") of device pages, as of KV in a forward pass."""

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
        """Layers a load is cut into; layer 0 is needed first."""

    def stream(self, name: str) -> Stream:
        """The stream of that name, made at first use."""

    def record(self, stream: Stream) -> Mark:
        """A new mark behind everything issued on the stream so far."""

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Later work on the stream starts only after the mark. Does not block the caller."""

    def query(self, mark: Mark) -> bool:
        """Whether the host may rely on the mark. Never blocks."""

    def failed(self, mark: Mark) -> bool:
        """Whether work before the mark on its stream, since the mark before it, failed.

        Only for a mark that was reached, whether the host saw it yet or not.
        """

    def copy(self, stream: Stream, job: CopyJob) -> None:
        """Queue a copy."""

    def touch(self, stream: Stream, touch: Touch) -> None:
        """Queue a read or write of the model's."""

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        """SHA-256 of the page's bytes over all pools and layers. For tests and checks only."""


class Inspectable(Device, Protocol):
    """A device with real bytes, which checks may look at and spoil in the order of its streams."""

    def scribble(self, stream: Stream, area: Area, seeds: Words) -> None:
        """Queue a write of bytes that the seeds determine, one seed per page, on either tier."""

    def peek(self, stream: Stream, area: Area, then: Peeker) -> None:
        """Queue a look at the pages' bytes. `then` gets a copy, on any thread, once it is there;
        after the host saw a later mark of the stream, it was called or is about to be."""


class Holdable(Inspectable, Protocol):
    """A device whose streams can be kept busy, to force an order that it would not take alone."""

    def hold(self, stream: Stream, time_ns: int) -> None:
        """Queue work that does nothing for about so long. Does not block the caller."""


D = TypeVar("D", bound=Device)
InspectableD = TypeVar("InspectableD", bound=Inspectable)


class Front(Generic[D]):
    """A device in front of another, to which it passes every call on. Whoever watches or changes
    some of the calls overrides those."""

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
    """The same in front of a device with real bytes."""

    def scribble(self, stream: Stream, area: Area, seeds: Words) -> None:
        self.inner.scribble(stream, area, seeds)

    def peek(self, stream: Stream, area: Area, then: Peeker) -> None:
        self.inner.peek(stream, area, then)
