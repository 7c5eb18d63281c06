"""What devices with real bytes have in common: from a call, checked, to work on one stream.

Lives here: streams by their names, which call becomes which work, times of marks, the end of a
device. Must not live here: what a call may name (_issue), how work is put on a stream or carried
out, marks (cpu, cuda).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from hicache.core.errors import CallerError
from hicache.memory.stamp import Words
from hicache.memory.table import PoolTable

from ._issue import Issue, check_hold
from .base import Area, CopyJob, DeviceOptions, Mark, Peeker, Stream, Touch

L = TypeVar("L")


class Streamed(ABC, Generic[L]):
    """L: what the device keeps of one stream. The calls of `Holdable` but for marks and digests.

    What is put on a line was checked before: its pages, its layers, and that the device is open.
    """

    def __init__(self, table: PoolTable[Any], options: DeviceOptions) -> None:
        self._layers = table.model.layers
        self._issue = Issue(table, options.content)
        self._reader = options.reader
        self._timed = options.timer is not None
        self._reached_ns: dict[Mark, int] = {}
        self._by_name: dict[str, Stream] = {}
        self._lines: list[L] = []
        self._closed = False

    @property
    def layers(self) -> int:
        return self._layers

    def stream(self, name: str) -> Stream:
        """The stream of that name, made at first use."""
        self._check_open()
        if name not in self._by_name:
            self._by_name[name] = Stream(len(self._lines))
            self._lines.append(self._make_line(name))
        return self._by_name[name]

    @abstractmethod
    def query(self, mark: Mark) -> bool:
        """Whether the host may rely on the mark. Never blocks."""

    def reached_ns(self, mark: Mark) -> int:
        """When the mark was reached, on the timer given. Asked once for each mark."""
        if not self._timed or not self.query(mark):
            raise CallerError(
                f"reached_ns: expected a device with a timer and a mark reached, found {mark}"
            )
        return self._reached_ns.pop(mark)

    def copy(self, stream: Stream, job: CopyJob) -> None:
        """Queue a copy."""
        line = self._line(stream)
        self._issue.check_copy(job)
        self._put_copy(line, job)

    def touch(self, stream: Stream, touch: Touch) -> None:
        """Queue a read or write of the model's."""
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
        """Queue a look at the pages' bytes, of which `then` gets a copy."""
        line = self._line(stream)
        self._issue.check_area(area)
        self._put_look(line, area, then)

    def hold(self, stream: Stream, time_ns: int) -> None:
        """Keep the stream busy for about so long, to force an order of ends."""
        check_hold(time_ns)
        self._put_rest(self._line(stream), time_ns)

    def close(self) -> None:
        """End what was issued and give memory back. Later calls but `digest` are errors."""
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
        self.close()

    @abstractmethod
    def _make_line(self, name: str) -> L:
        """A stream's beginning."""

    @abstractmethod
    def _put_copy(self, line: L, job: CopyJob) -> None: ...

    @abstractmethod
    def _put_write(self, line: L, area: Area, seeds: Words) -> None: ...

    @abstractmethod
    def _put_look(self, line: L, area: Area, then: Peeker) -> None: ...

    @abstractmethod
    def _put_read(self, line: L, area: Area) -> None:
        """A read of the model's that nobody wants to see."""

    @abstractmethod
    def _put_rest(self, line: L, time_ns: int) -> None: ...

    @abstractmethod
    def _end(self) -> None:
        """The device was open and is closed."""

    def _line(self, stream: Stream) -> L:
        self._check_open()
        if not 0 <= stream < len(self._lines):
            raise CallerError(f"stream: expected one that this device made, found {stream}")
        return self._lines[stream]

    def _check_open(self) -> None:
        if self._closed:
            raise CallerError("device: expected an open one, found it closed")
