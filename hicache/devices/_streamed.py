"""The base of devices with real bytes: it turns a checked call into work on one stream.

It has the streams by name, the work for each call, the times of marks, and the closing of a device.
It does not check the arguments of calls, see `_issue`, or run work and record marks, see `cpu` and
`cuda`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from hicache.core.errors import CallerError
from hicache.memory.layouts import Words
from hicache.memory.segments import try_all
from hicache.memory.table import PoolTable

from ._issue import Issue, check_hold
from ._marks import Recent
from .base import Area, CopyJob, DeviceOptions, Mark, Peeker, Stream, Touch

L = TypeVar("L")


class Streamed(ABC, Generic[L]):
    """The calls of `Holdable`, except those for marks and digests. L: the device's record of one
    stream, called its line.

    Before work is put on a line, its pages and layers are checked, and that the device is open.
    table: its pools on both tiers.
    """

    def __init__(self, table: PoolTable[Any], options: DeviceOptions) -> None:
        self.table = table
        self._layers = table.model.layers
        self._issue = Issue(table, options.content)
        self._reader = options.reader
        self._timed = options.timer is not None
        self._reached_ns: Recent[int] = Recent("reached_ns")
        self._by_name: dict[str, Stream] = {}
        self._lines: list[L] = []
        self._closed = False

    @property
    def layers(self) -> int:
        return self._layers

    def stream(self, name: str) -> Stream:
        """The stream with this name, created at first use."""
        self._check_open()
        if name not in self._by_name:
            self._by_name[name] = Stream(len(self._lines))
            self._lines.append(self._make_line(name))
        return self._by_name[name]

    @abstractmethod
    def query(self, mark: Mark) -> bool:
        """Whether the host may rely on the mark. Never blocks."""

    def reached_ns(self, mark: Mark) -> int:
        """When the mark was reached, in nanoseconds of the device's timer. Call it once per mark.

        Raises CallerError without a timer, for a mark that was not reached, and for one whose time
        was read or forgotten (see `Recent`)."""
        if not self._timed or not self.query(mark):
            raise CallerError(
                f"reached_ns: expected a device with a timer and a mark reached, found {mark}"
            )
        reached = self._reached_ns.take(mark)
        if reached is None:
            raise CallerError(f"reached_ns: expected a mark whose time was not read, found {mark}")
        return reached

    def copy(self, stream: Stream, job: CopyJob) -> None:
        """Queue a copy."""
        line = self._line(stream)
        self._issue.check_copy(job)
        self._put_copy(line, job)

    def touch(self, stream: Stream, touch: Touch) -> None:
        """Queue a read or write by the model."""
        line, area = self._line(stream), touch.area
        self._issue.check_area(area)
        if touch.mode == "w":
            self._put_write(line, area, self._issue.seeds(touch))
        elif self._reader is not None:
            then = partial(self._reader, touch.component, touch.pages, touch.layers)
            self._put_look(line, area, then)
        else:
            self._put_read(line, area)

    def scribble(self, stream: Stream, area: Area, seeds: Words) -> None:
        """Queue a write of bytes that the seeds determine, one seed per page, on either tier."""
        line = self._line(stream)
        self._issue.check_area(area)
        self._put_write(line, area, seeds)

    def peek(self, stream: Stream, area: Area, then: Peeker) -> None:
        """Queue a read of the pages' bytes. `then` is called with a copy."""
        line = self._line(stream)
        self._issue.check_area(area)
        self._put_look(line, area, then)

    def hold(self, stream: Stream, time_ns: int) -> None:
        """Keep the stream busy for about `time_ns`, to force an order of work."""
        check_hold(time_ns)
        self._put_rest(self._line(stream), time_ns)

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
    def _put_look(self, line: L, area: Area, then: Peeker) -> None: ...

    @abstractmethod
    def _put_read(self, line: L, area: Area) -> None:
        """Queue a read by the model whose result is not wanted."""

    @abstractmethod
    def _put_rest(self, line: L, time_ns: int) -> None: ...

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
