"""The CUDA device: device memory, pinned host memory, and its own streams and events.

It has the streams and marks of a device. Its parts are in other files: `_streamed` (the work for
each call), `_traffic` (putting work on a stream), `_movers` (how a copy is made), `_accelerator`
(calls to CUDA), `_marks` (the records of marks) and `hicache/memory` (where bytes are).

Only `synchronize`, `digest` and `close` wait for the device, but the first use of a size or kernel
may allocate memory or compile. All methods must be called from one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

from hicache.core.types import Tier
from hicache.memory.layouts import Words, check
from hicache.memory.segments import try_all
from hicache.memory.torch_arena import Place, TorchArena
from hicache.models.base import ModelDescription

from ._accelerator import Accelerator, unusable
from ._marks import Event, Marks
from ._movers.base import Mover, Options
from ._streamed import Streamed
from ._traffic import Runtime, TorchLine, Traffic, mover_of
from .base import Area, CopyJob, DeviceOptions, Mark, Peeker, Stream

__all__ = ["BLOCKS", "CudaDevice", "Runtime", "unusable"]

BLOCKS = 16
_SPAN_MS = 1000.0
_DEFAULTS = DeviceOptions()


class CudaDevice(Streamed[TorchLine]):
    """Implements `Holdable`. Close it, or use it in a `with` statement, to unpin its memory."""

    def __init__(
        self,
        model: ModelDescription,
        page_size: int,
        device_pages: Mapping[str, int],
        host_pages: Mapping[str, int],
        options: DeviceOptions = _DEFAULTS,
        *,
        blocks: int = BLOCKS,
        batched: bool = True,
        accelerator: Runtime | None = None,
    ) -> None:
        """device_pages, host_pages: by component. blocks: programs of the kernel of backend
        `kernel`. batched: whether `direct` uses the driver's batches, if there are any. Raises
        CallerError as `TorchArena` does, and if no CUDA device can be used."""
        check(options.layout, options.io_backend)
        runtime = Accelerator() if accelerator is None else accelerator
        mover = _mover(runtime, options, blocks, batched)
        tiers = {Tier.DEVICE: device_pages, Tier.HOST: host_pages}
        arena = TorchArena(
            model,
            page_size,
            tiers,
            Place(runtime.place, runtime.free),
            layout=options.layout,
            backend=options.io_backend,
            tp=options.tp,
            node=options.numa_node,
            registrar=runtime,
            segment_bytes=options.segment_bytes,
        )
        self._begin(arena, runtime, mover, options)

    @classmethod
    def over(cls, arena: TorchArena, runtime: Runtime, options: DeviceOptions = _DEFAULTS) -> Self:
        """A device for pools that are there already. It closes them."""
        device = cls.__new__(cls)
        device._begin(arena, runtime, _mover(runtime, options, BLOCKS, True), options)
        return device

    def _begin(
        self, arena: TorchArena, runtime: Runtime, mover: Mover, options: DeviceOptions
    ) -> None:
        self.arena, self._accelerator = arena, runtime
        try:
            super().__init__(arena, options)
            self._prepare(runtime, mover, options)
        except BaseException as error:
            # else the memory would be freed while it is still registered
            try_all(arena.close, first=error)
            raise

    def _prepare(self, runtime: Runtime, mover: Mover, options: DeviceOptions) -> None:
        self._traffic = Traffic(runtime, self.arena, mover)
        self._fault = options.fault
        self._aside = runtime.stream()
        self._zero: Any = runtime.event(self._timed)
        # The memory was zeroed on another stream, for which the streams of the device do not wait.
        runtime.finish()
        with runtime.on(self._aside):
            self._zero.record(self._aside)
        runtime.finish()
        self._zero_ns = 0 if options.timer is None else options.timer()
        self._marks = Marks(self._note_time if self._timed else None)

    def record(self, stream: Stream) -> Mark:
        """A new mark after all work issued on the stream so far."""
        line = self._line(stream)
        event = self._accelerator.event(self._timed)
        event.record(line.stream)
        return self._marks.record(line, event)

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Later work on the stream starts only after the mark. Does not block the caller."""
        line = self._line(stream)
        event = self._marks.event(mark)
        if event is not None:
            line.stream.wait_event(event)

    def query(self, mark: Mark) -> bool:
        """Whether the host may rely on the mark. Never blocks."""
        return self._marks.reached(mark)

    def failed(self, mark: Mark) -> bool:
        """Whether work between the previous mark of the stream and this one failed. Raises
        CallerError for a mark that was not reached, or whose failure may have been forgotten."""
        return self._marks.failed(mark)

    def synchronize(self, mark: Mark) -> None:
        """Block the caller until the mark is reached."""
        event = self._marks.event(mark)
        if event is not None:
            event.synchronize()
            self._marks.reached(mark)

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """A context manager: in its `with` block, torch issues work on the stream, such as the
        model's own."""
        return self._accelerator.on(self._line(stream).stream)

    def follow(self, stream: Stream) -> None:
        """Later work on the stream starts only after the work that torch was given so far on its
        current stream, such as that of an engine which owns the memory. Does not block."""
        event = self._accelerator.event(False)
        event.record()
        self._line(stream).stream.wait_event(event)

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        """SHA-256 of the page's bytes over all pools and layers. For tests and checks only."""
        with self._accelerator.on(self._aside):
            return self.arena.digest(tier, component, page)

    def _make_line(self, name: str) -> TorchLine:
        return TorchLine(self._accelerator.stream())

    def _put_copy(self, line: TorchLine, job: CopyJob) -> None:
        if len(job.source) and self._fails(job):
            line.failed = True
            return
        self._traffic.copy(line, job)

    def _put_write(self, line: TorchLine, area: Area, seeds: Words) -> None:
        self._traffic.write(line, area, seeds)

    def _put_look(self, line: TorchLine, area: Area, then: Peeker) -> None:
        """`then` is called when a later mark is seen reached."""
        self._traffic.look(line, area, then)

    def _put_read(self, line: TorchLine, area: Area) -> None:
        self._traffic.read(line, area)

    def _put_rest(self, line: TorchLine, time_ns: int) -> None:
        self._accelerator.hold(line.stream, time_ns)

    def _end(self) -> None:
        """Wait for all issued work, then unpin host memory.

        After an error of the device every call of CUDA returns that error, also those that unpin.
        """
        try_all(self._finish, self.arena.close)

    def _finish(self) -> None:
        self._accelerator.finish()
        for line in self._lines:
            self._marks.settle(line)

    def _fails(self, job: CopyJob) -> bool:
        fault = self._fault
        return fault is not None and fault(job.direction, job.component, job.source)

    def _note_time(self, mark: Mark, event: Event) -> None:
        """Note when a mark was reached. Elapsed times are 32-bit floats, exact only over short
        spans, so the reference event is replaced from time to time."""
        since_ms: float = self._zero.elapsed_time(event)
        at_ns = self._zero_ns + round(since_ms * 1e6)
        self._reached_ns.note(mark, at_ns)
        if since_ms > _SPAN_MS:
            self._zero, self._zero_ns = event, at_ns


def _mover(runtime: Runtime, options: DeviceOptions, blocks: int, batched: bool) -> Mover:
    batches = (runtime.batch, runtime.batch_rows) if batched and runtime.batches else (None, None)
    return mover_of(options.io_backend, Options(blocks, *batches))
