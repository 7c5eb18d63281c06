"""A device in virtual time: FIFO streams, copies in chunks, and events that the host sees late.

Times do not depend on whether bytes are kept: runs with and without checks have the same history.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.devices.base import Access, Area, CopyJob, DeviceEvent, Direction, OnRead, Stream

from ..clock import Clock
from ..content import ROW_WORDS, Words, draw
from .link import Link
from .memory import Memory, Place

NEVER = -1
UNSEEN = 1 << 62


Action: TypeAlias = Callable[[], None]
FaultRule: TypeAlias = Callable[[int, Direction], bool]


def no_faults(_: int, __: Direction) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class SimDeviceOptions:
    """page_bytes: bytes of a page in each layer group, by component. to_host: the same of a copy to
    host, where that moves fewer over a link; None for page_bytes. seed: seed of all random draws.

    lag_ns     the host sees an event up to this long after it was reached (drawn for each).
    chunks     a copy is read and written in 1 to this many parts (drawn for each).
    faults     decides which copies fail, from the number in order of issue and the direction.
    write_pattern   a write by `access` leaves unique bytes; off if `publish` always writes the
               real content afterwards.
    """

    page_bytes: Mapping[str, tuple[int, ...]]
    seed: int = 0
    lag_ns: int = 5_000
    chunks: int = 4
    faults: FaultRule = no_faults
    write_pattern: bool = True
    to_host: Mapping[str, tuple[int, ...]] | None = None

    def copied_bytes(self, direction: Direction) -> Mapping[str, tuple[int, ...]]:
        """Bytes of a page that a link moves, in each layer group, by component."""
        if direction is Direction.DEVICE_TO_HOST and self.to_host is not None:
            return self.to_host
        return self.page_bytes


@dataclass(slots=True, eq=False)
class _Stream:
    """Work in order of issue. paused: the first item runs or waits, and no later one may begin.

    device_events: number of those reached. Random draws use the stream's name and this number, so
    that one stream does not change the draws of another.
    """

    name: str
    work: deque[Callable[[_Stream], None]] = field(default_factory=deque)
    paused: bool = False
    failed: bool = False
    device_events: int = 0


class SimDevice:
    """See the module. links: one, or one of each stage of a pipeline. listener: called when the
    host may see something new."""

    def __init__(
        self,
        clock: Clock,
        links: Link | Sequence[Link],
        options: SimDeviceOptions,
        memory: Memory | None = None,
    ) -> None:
        self._clock = clock
        self._links = [links] if isinstance(links, Link) else links
        self._options = options
        self._memory = memory
        self._layers = len(next(iter(options.page_bytes.values())))
        self._names: dict[str, Stream] = {}
        self._streams: list[_Stream] = []
        # by event: when it was reached, and when the host sees that, in nanoseconds
        self._reached_ns = array("q")
        self._visible_ns = array("q")
        self._failed: dict[int, None] = {}
        self._waiting: dict[int, list[Action]] = {}
        self._synced: dict[int, Action] = {}
        self._copies = 0
        self.listener: Action = lambda: None

    @property
    def layers(self) -> int:
        return self._layers

    def stream(self, name: str) -> Stream:
        stream = self._names.get(name)
        if stream is None:
            stream = self._names[name] = Stream(len(self._streams))
            self._streams.append(_Stream(name))
        return stream

    def record(self, stream: Stream) -> DeviceEvent:
        number = len(self._reached_ns)
        self._reached_ns.append(NEVER)
        self._visible_ns.append(UNSEEN)
        self._issue(stream, lambda line: self._reach(line, number))
        return DeviceEvent(number)

    def wait(self, stream: Stream, device_event: DeviceEvent) -> None:
        if self._reached_ns[device_event] == NEVER:
            self._issue(stream, lambda line: self._hold_for(line, device_event))

    def query(self, device_event: DeviceEvent) -> bool:
        return self._visible_ns[device_event] <= self._clock.now_ns

    def failed(self, device_event: DeviceEvent) -> bool:
        if self._reached_ns[device_event] == NEVER:
            raise CallerError(
                f"failed: expected an event that was reached, found event {device_event}"
            )
        return device_event in self._failed

    def reached_ns(self, device_event: DeviceEvent) -> int:
        """Time at which the event was reached; the host may have seen it later."""
        return self._reached_ns[device_event]

    def sync(self, device_event: DeviceEvent, action: Action) -> None:
        """Calls `action` when the event is reached; the host sees this event without lag."""
        assert self._reached_ns[device_event] == NEVER, (
            "an event that was reached already needs no sync"
        )
        self._synced[device_event] = action

    def compute(self, stream: Stream, duration_ns: int) -> None:
        """Queues `duration_ns` of the model's work."""
        self._issue(stream, lambda line: self._run(line, duration_ns))

    def copy(self, stream: Stream, job: CopyJob) -> None:
        source, target, layers = job.source, job.target, job.layers
        if len(source) != len(target):
            raise CallerError(f"{job.why}: {len(target)} targets for {len(source)} sources")
        if not len(source):
            return
        number = self._copies
        self._copies = number + 1
        near, far = ((tier, job.component) for tier in job.direction.ends)
        copy = _Copy(job, f"{job.why}, copy {number}", near, far)
        moved = self._options.copied_bytes(job.direction)[job.component]
        size = len(source) * sum(moved[layers[0] : layers[1]])
        if self._memory is not None:
            copy.tags = self._memory.claim_copy(copy.near, copy.far, (source, target), layers)
        self._issue(stream, lambda line: self._send(line, copy, number, size))

    def access(self, stream: Stream, access: Access) -> None:
        """Queues a write of unique bytes, with `write_pattern`; `publish` writes known content."""
        if access.mode == "w" and self._memory is not None and self._options.write_pattern:
            self.publish(stream, access, self._memory.pattern_tags(access.pages))

    def publish(self, stream: Stream, access: Access, tags: Words) -> None:
        """Queues the model's write of known content. tags: uint64[len(pages)]."""
        if self._memory is not None:
            self._write(self._memory, stream, access.area, tags, access.why)

    def verify(
        self, stream: Stream, access: Access, tags: Words, unless: tuple[DeviceEvent, ...] = ()
    ) -> None:
        """Queues the model's read and compares the content with the tags when it runs.

        Skips the comparison if one of the events `unless` has failed: the data did not arrive.
        """
        memory = self._memory
        if memory is None:
            return
        place = (Tier.DEVICE, access.component)

        def check(_: _Stream) -> None:
            if not any(device_event in self._failed for device_event in unless):
                memory.verify(place, access.pages, tags, access.layers, access.why)

        self._issue(stream, check)

    def write_pattern(self, stream: Stream, area: Area, seeds: Words) -> None:
        """Queues a write of the content of these seeds, on either tier. Raises CallerError if the
        device keeps no bytes.
        """
        self._write(self._kept("write_pattern"), stream, area, seeds, "write_pattern")

    def _write(self, memory: Memory, stream: Stream, area: Area, tags: Words, why: str) -> None:
        place, pages, layers = area.place, area.pages, area.layers
        memory.claim(place, pages, tags, layers)
        self._issue(stream, lambda _: memory.write(place, pages, tags, layers, why))

    def read(self, stream: Stream, area: Area, then: OnRead) -> None:
        """Queues a read of the pages; `then` gets their bytes. Raises CallerError if the device
        keeps no bytes.
        """
        memory = self._kept("read")

        def look(_: _Stream) -> None:
            then((memory.block(area.place, area.pages, area.layers).view(np.uint8),))

        self._issue(stream, look)

    def _kept(self, name: str) -> Memory:
        if self._memory is None:
            raise CallerError(f"{name}: expected a device that keeps bytes; turn checks on")
        return self._memory

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        return self._kept("digest").digest((tier, component), page)

    def _issue(self, stream: Stream, work: Callable[[_Stream], None]) -> None:
        line = self._streams[stream]
        line.work.append(work)
        if not line.paused:
            self._pump(line)

    def _pump(self, line: _Stream) -> None:
        while line.work and not line.paused:
            line.work.popleft()(line)

    def _release(self, line: _Stream) -> None:
        line.paused = False
        self._pump(line)

    def _run(self, line: _Stream, duration_ns: int) -> None:
        line.paused = True
        self._clock.after(duration_ns, lambda: self._release(line))

    def _hold_for(self, line: _Stream, device_event: DeviceEvent) -> None:
        if self._reached_ns[device_event] == NEVER:
            line.paused = True
            self._waiting.setdefault(device_event, []).append(lambda: self._release(line))

    def _reach(self, line: _Stream, device_event: int) -> None:
        now = self._clock.now_ns
        self._reached_ns[device_event] = now
        if line.failed:
            self._failed[device_event] = None
            line.failed = False
        for resume in self._waiting.pop(device_event, ()):
            resume()
        synced = self._synced.pop(device_event, None)
        if synced is not None:
            self._visible_ns[device_event] = now
            synced()
            return
        line.device_events += 1
        lag_ns = self._lag_ns(line, device_event)
        self._visible_ns[device_event] = now + lag_ns
        self._clock.after(lag_ns, lambda: self.listener())

    def _send(self, line: _Stream, copy: _Copy, number: int, size: int) -> None:
        """Starts a copy. A copy without bytes, of layers in which the component has no pool, takes
        no time.
        """
        direction = copy.job.direction
        first = min(copy.job.layers[0], self._layers - 1)
        link = self._links[first * len(self._links) // self._layers]
        line.paused = True
        if self._options.faults(number, direction):
            line.failed = True
            link.send(direction, 0, [lambda: self._release(line)])
            return
        if not size:
            line.paused = False
            if self._memory is not None:
                self._read(copy, [0, len(copy.job.source) * ROW_WORDS], 0)
                self._store(copy, [0, len(copy.job.source) * ROW_WORDS], 0)
            return
        if self._memory is None:
            link.send(direction, size, [lambda: self._release(line)])
            return
        parts = self._parts(number)
        words = len(copy.job.source) * ROW_WORDS
        bounds = [words * part // parts for part in range(parts + 1)]
        link.send(
            direction,
            size,
            [lambda part=part: self._chunk(line, copy, bounds, part) for part in range(parts)],  # type: ignore[misc]
        )
        self._read(copy, bounds, 0)

    def _lag_ns(self, line: _Stream, device_event: int) -> int:
        """Nanoseconds from the reaching of an event until the host sees it. Fuzzing overrides
        it."""
        options = self._options
        return draw(options.lag_ns + 1, options.seed, "lag", line.name, line.device_events)

    def _parts(self, number: int) -> int:
        """Number of chunks of a copy. Fuzzing overrides it."""
        return 1 + draw(self._options.chunks, self._options.seed, "chunks", number)

    def _read(self, copy: _Copy, bounds: list[int], part: int) -> None:
        assert self._memory is not None
        span = (bounds[part], bounds[part + 1])
        copy.moving = self._memory.fetch(copy.near, copy.job.source, span, copy.job.layers)

    def _chunk(self, line: _Stream, copy: _Copy, bounds: list[int], part: int) -> None:
        """Writes an arrived part, then reads the next part, or continues the stream after
        the last.
        """
        self._store(copy, bounds, part)
        if part + 2 < len(bounds):
            self._read(copy, bounds, part + 1)
        else:
            self._release(line)

    def _store(self, copy: _Copy, bounds: list[int], part: int) -> None:
        """Writes a part; after the last part, verifies the whole copy."""
        memory = self._memory
        assert memory is not None
        span = (bounds[part], bounds[part + 1])
        memory.store(copy.far, copy.job.target, span, copy.job.layers, copy.moving)
        if part + 2 == len(bounds):
            memory.verify(copy.far, copy.job.target, copy.tags, copy.job.layers, copy.why)


_NO_TAGS: Words = np.empty(0, dtype=np.uint64)


@dataclass(slots=True, eq=False)
class _Copy:
    """One queued copy. tags: the content it must deliver by program order. moving: the part in
    transit."""

    job: CopyJob
    why: str
    near: Place
    far: Place
    tags: Words = field(default_factory=lambda: _NO_TAGS)
    moving: Words = field(default_factory=lambda: _NO_TAGS)
