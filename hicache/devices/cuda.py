"""Real bytes on a CUDA device: its own streams and events, pinned host memory, no waiting.

Lives here: the calls of `Device`, checked, and their streams and marks. Must not live here: what a
call puts on a stream (_traffic), how a copy is made (_movers), calls of CUDA (_accelerator), the
books of marks (_marks), where bytes are (memory), which pages move or why (runtime).

No call but `synchronize`, `digest` and `close` waits for the device, once sizes and kernels have
been used before: the first use of one may allocate or compile. All methods are for one caller
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, Literal

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.memory.layouts import check
from hicache.memory.segments import DEFAULT_BYTES
from hicache.memory.stamp import Words
from hicache.memory.torch_arena import Place, TorchArena
from hicache.models.base import ModelDescription

from ._accelerator import Accelerator, unusable
from ._issue import Content, Fault, Issue, Reader, check_hold
from ._marks import Event, Marks
from ._movers.base import Mover, Options
from ._traffic import Lane, Runtime, Traffic, mover_of
from .base import Direction, Mark, Peeker, Stream

__all__ = ["BLOCKS", "CudaDevice", "Runtime", "unusable"]

BLOCKS = 16
_SPAN_MS = 1000.0


class CudaDevice:
    """Implements `Holdable`. Close it, or use it in a `with` statement, to unpin its memory."""

    def __init__(
        self,
        model: ModelDescription,
        page_size: int,
        device_pages: Mapping[str, int],
        host_pages: Mapping[str, int],
        *,
        layout: str = "page_first",
        io_backend: str = "kernel",
        tp: int = 1,
        content: Content | None = None,
        reader: Reader | None = None,
        fault: Fault | None = None,
        timer: Callable[[], int] | None = None,
        numa_node: int | None = None,
        segment_bytes: int = DEFAULT_BYTES,
        blocks: int = BLOCKS,
        batched: bool = True,
        accelerator: Runtime | None = None,
    ) -> None:
        """Sizes are per component; layout is the host tier's.

        content: the 64-bit seeds, one per page, of what a `touch` in mode w writes; asked when the
        touch is issued. By default each write has seeds of its own. reader: sees what a touch in
        mode r read, one canonical array per pool, in the caller's thread when a mark behind the
        touch is seen reached. fault: says of a copy about to be issued whether it fails as broken
        hardware would. timer: nanoseconds now, the zero of `reached_ns`. numa_node: of host memory,
        registered in segments of about segment_bytes. blocks: programs of the `kernel` backend's
        kernel. batched: give `direct` the driver's batches where it has them.
        """
        check(layout, io_backend)
        self._accelerator = runtime = Accelerator() if accelerator is None else accelerator
        batch = runtime.batch if batched and runtime.batches else None
        mover = mover_of(io_backend, Options(blocks, batch))
        tiers = {Tier.DEVICE: device_pages, Tier.HOST: host_pages}
        self.arena = TorchArena(
            model,
            page_size,
            tiers,
            Place(runtime.place, runtime.free),
            layout=layout,
            backend=io_backend,
            tp=tp,
            node=numa_node,
            registrar=runtime,
            segment_bytes=segment_bytes,
        )
        try:
            self._begin(runtime, mover, content, reader, fault, timer)
        except BaseException:
            self.arena.close()  # or its memory would go while the device still has it registered
            raise

    def _begin(
        self,
        runtime: Runtime,
        mover: Mover,
        content: Content | None,
        reader: Reader | None,
        fault: Fault | None,
        timer: Callable[[], int] | None,
    ) -> None:
        self._traffic = Traffic(runtime, self.arena, mover)
        self._issue = Issue(self.arena, content)
        self._reader = reader
        self._fault = fault
        self._timed = timer is not None
        self._reached_ns: dict[Mark, int] = {}
        self._by_name: dict[str, Stream] = {}
        self._lanes: list[Lane] = []
        self._closed = False
        self._aside = runtime.stream()
        self._zero: Any = runtime.event(self._timed)
        # Memory was zeroed on another stream than the ones to come, which do not wait for it.
        runtime.finish()
        with runtime.on(self._aside):
            self._zero.record(self._aside)
        runtime.finish()
        self._zero_ns = 0 if timer is None else timer()
        self._marks = Marks(self._note_time if self._timed else None)

    @property
    def layers(self) -> int:
        return self.arena.model.layers

    def stream(self, name: str) -> Stream:
        """The stream of that name, made at first use."""
        self._check_open()
        if name not in self._by_name:
            self._by_name[name] = Stream(len(self._lanes))
            self._lanes.append(Lane(self._accelerator.stream()))
        return self._by_name[name]

    def record(self, stream: Stream) -> Mark:
        """A new mark behind everything issued on the stream so far."""
        lane = self._lane(stream)
        event = self._accelerator.event(self._timed)
        event.record(lane.stream)
        return self._marks.record(lane, event)

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Later work on the stream starts only after the mark. Does not block the caller."""
        lane = self._lane(stream)
        event = self._marks.event(mark)
        if event is not None:
            lane.stream.wait_event(event)

    def query(self, mark: Mark) -> bool:
        """Whether the host may rely on the mark. Never blocks."""
        return self._marks.reached(mark)

    def failed(self, mark: Mark) -> bool:
        """Whether work before the mark on its stream, since the mark before it, failed."""
        return self._marks.failed(mark)

    def reached_ns(self, mark: Mark) -> int:
        """When the mark was reached, on the timer given. Asked once for each mark."""
        if not self._timed or not self.query(mark):
            raise CallerError(
                f"reached_ns: expected a device with a timer and a mark reached, found {mark}"
            )
        return self._reached_ns.pop(mark)

    def synchronize(self, mark: Mark) -> None:
        """Block the caller until the mark is reached."""
        event = self._marks.event(mark)
        if event is not None:
            event.synchronize()
            self._marks.reached(mark)

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """What torch is given in the `with` block goes to the stream: a model's own work."""
        return self._accelerator.on(self._lane(stream).stream)

    def hold(self, stream: Stream, time_ns: int) -> None:
        """Keep the stream busy for about so long, to force an order of ends."""
        check_hold(time_ns)
        self._accelerator.hold(self._lane(stream).stream, time_ns)

    def copy(
        self,
        stream: Stream,
        direction: Direction,
        component: str,
        source: Pages,
        target: Pages,
        layers: tuple[int, int],
        why: str,
    ) -> None:
        """Queue a copy of layers [first, last) of each page, for every pool of the component."""
        lane = self._lane(stream)
        self._issue.check_copy(direction, component, source, target, layers, why)
        if len(source) and self._fault is not None and self._fault(direction, component, source):
            lane.failed = True
            return
        self._traffic.copy(lane, direction, component, (source, target), layers)

    def touch(
        self,
        stream: Stream,
        component: str,
        pages: Pages,
        mode: Literal["r", "w"],
        layers: tuple[int, int],
        why: str,
    ) -> None:
        """Queue the model's own read or write of device pages (KV of a forward pass)."""
        lane = self._lane(stream)
        self._issue.check_pages(Tier.DEVICE, component, pages, layers)
        if mode == "w":
            seeds = self._issue.seeds(component, pages, why)
            self._traffic.write(lane, Tier.DEVICE, component, pages, seeds, layers)
        elif self._reader is not None:
            then = partial(self._reader, component, pages, layers)
            self._traffic.look(lane, Tier.DEVICE, component, pages, layers, then)
        else:
            self._traffic.read(lane, component, pages, layers)

    def scribble(
        self,
        stream: Stream,
        tier: Tier,
        component: str,
        pages: Pages,
        seeds: Words,
        layers: tuple[int, int],
    ) -> None:
        """Queue a write of bytes that the seeds determine, one seed per page, on either tier."""
        lane = self._lane(stream)
        self._issue.check_pages(tier, component, pages, layers)
        self._traffic.write(lane, tier, component, pages, seeds, layers)

    def peek(
        self,
        stream: Stream,
        tier: Tier,
        component: str,
        pages: Pages,
        layers: tuple[int, int],
        then: Peeker,
    ) -> None:
        """Queue a look at the pages' bytes; `then` gets a copy when a later mark is seen."""
        lane = self._lane(stream)
        self._issue.check_pages(tier, component, pages, layers)
        self._traffic.look(lane, tier, component, pages, layers, then)

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        """SHA-256 of the page's bytes over all pools and layers. For tests and checks only."""
        with self._accelerator.on(self._aside):
            return self.arena.digest(tier, component, page)

    def close(self) -> None:
        """Wait for what was issued and unpin the host's memory. Later calls but `digest` fail."""
        if self._closed:
            return
        self._closed = True
        try:
            self._accelerator.finish()
            for lane in self._lanes:
                self._marks.drain(lane)
        finally:
            self.arena.close()

    def __enter__(self) -> CudaDevice:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _note_time(self, mark: Mark, event: Event) -> None:
        """Elapsed times are floats of 32 bits, exact only over short spans, so the zero moves."""
        since_ms: float = self._zero.elapsed_time(event)
        self._reached_ns[mark] = at_ns = self._zero_ns + round(since_ms * 1e6)
        if since_ms > _SPAN_MS:
            self._zero, self._zero_ns = event, at_ns

    def _lane(self, stream: Stream) -> Lane:
        self._check_open()
        if not 0 <= stream < len(self._lanes):
            raise CallerError(f"stream: expected one that this device made, found {stream}")
        return self._lanes[stream]

    def _check_open(self) -> None:
        if self._closed:
            raise CallerError("device: expected an open one, found it closed")
