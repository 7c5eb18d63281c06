"""The CUDA device: device memory, pinned host memory, and its own streams and events.

Its parts are in other files: `_traffic` (putting work on a stream, and how a copy is made),
`_accelerator` (calls to CUDA) and `_issuing` (the thread that makes them, and events).

Only `synchronize`, `digest` and `close` wait for the device, but the first use of a size or kernel
may allocate memory or compile. All methods must be called from one thread.

Large copies are issued by another thread, and so is everything that comes on their stream before
that thread has caught up. Other work on that stream, and a wait of another stream for one of its
events, make the caller wait until the thread has issued what they come after: CUDA takes an event
that was not recorded yet as reached.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Self

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.memory.host import try_all
from hicache.memory.layouts import Words, check
from hicache.memory.torch_arena import Place, TorchArena
from hicache.models.base import ModelDescription

from ._accelerator import Accelerator, unusable
from ._issuing import DeviceEvents, Issued, Issuer
from ._traffic import CopyBackend, Direct, Runtime, TorchLine, Traffic
from .base import MOST, Area, CopyJob, DeviceEvent, DeviceOptions, OnRead, Stream, Streamed

__all__ = ["BLOCKS", "FEW", "CudaDevice", "Runtime", "unusable"]

BLOCKS = 16
# A copy of as many pieces takes less time to issue than to hand to a thread that needs Python's
# lock: 35 us of the driver (on an H200), and up to 5 ms where the caller computes in Python.
FEW = 64
_SPAN_MS = 1000.0
_DEFAULTS = DeviceOptions()


class CudaDevice(Streamed[TorchLine]):
    """Implements `Device`. Close it, or use it in a `with` statement, to unpin its memory."""

    def __init__(
        self,
        model: ModelDescription,
        page_size: int,
        device_pages: Mapping[str, int],
        host_pages: Mapping[str, int],
        options: DeviceOptions = _DEFAULTS,
        *,
        few: int = FEW,
        accelerator: Runtime | None = None,
    ) -> None:
        """device_pages, host_pages: by component. few: pieces of a copy that is issued on the
        caller's thread. Raises CallerError as `TorchArena` does, and if no CUDA device can be used.
        """
        check(options.layout, options.io_backend)
        runtime = Accelerator() if accelerator is None else accelerator
        copy_backend = _copy_backend(runtime, options)
        tiers = {Tier.DEVICE: device_pages, Tier.HOST: host_pages}
        arena = TorchArena(
            model,
            page_size,
            tiers,
            Place(runtime.place, runtime.free),
            registrar=runtime,
            **options.of_arena,
        )
        self._begin(arena, runtime, copy_backend, options, few)

    @classmethod
    def over(cls, arena: TorchArena, runtime: Runtime, options: DeviceOptions = _DEFAULTS) -> Self:
        """A device for pools that are there already. It closes them."""
        device = cls.__new__(cls)
        device._begin(arena, runtime, _copy_backend(runtime, options), options, FEW)
        return device

    def _begin(
        self,
        arena: TorchArena,
        runtime: Runtime,
        copy_backend: CopyBackend,
        options: DeviceOptions,
        few: int,
    ) -> None:
        self.arena, self._accelerator, self._few = arena, runtime, few
        self._issuer = Issuer(runtime.attach)
        try:
            super().__init__(arena, options)
            self._traffic = Traffic(runtime, arena, copy_backend)
            self._aside = runtime.stream()
            self._zero: Any = runtime.event(self._timed)
            # The memory was zeroed on another stream, for which those of the device do not wait.
            runtime.finish()
            with runtime.on(self._aside):
                self._zero.record(self._aside)
            runtime.finish()
            self._zero_ns = 0 if options.timer is None else options.timer()
            self._device_events = DeviceEvents(self._note_time if self._timed else None)
        except BaseException as error:
            # else the memory would be freed while it is still registered
            try_all(arena.close, first=error)
            raise

    def record(self, stream: Stream) -> DeviceEvent:
        line = self._line(stream)
        event = self._accelerator.event(self._timed)
        number = self._in_turn(line, partial(event.record, line.stream))
        return self._device_events.record(line, Issued(self._issuer, event, number))

    def wait(self, stream: Stream, device_event: DeviceEvent) -> None:
        """Later work on the stream starts only after the event. The caller waits until the event is
        issued, or goes on at once if work on the stream is still to be issued."""
        line = self._line(stream)
        event = self._device_events.event(device_event)
        if event is None:
            return
        if self._issuer.made(line.last):
            self._issuer.settle(event.number)
        self._in_turn(line, partial(line.stream.wait_event, event.event))

    def query(self, device_event: DeviceEvent) -> bool:
        self._issuer.check()
        return self._device_events.reached(device_event)

    def synchronize(self, device_event: DeviceEvent) -> None:
        """Block the caller until the event is reached."""
        event = self._device_events.event(device_event)
        if event is not None:
            event.synchronize()
            self._device_events.reached(device_event)

    def follow(self, stream: Stream) -> None:
        """Later work on the stream starts only after the work that torch was given so far on its
        current stream, such as that of an engine which owns the memory; the caller goes on."""
        event = self._accelerator.event(False)
        event.record()
        line = self._line(stream)
        self._in_turn(line, partial(line.stream.wait_event, event))

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        with self._accelerator.on(self._aside):
            return self.arena.digest(tier, component, page)

    def _make_line(self, name: str) -> TorchLine:
        return TorchLine(self._accelerator.stream())

    def _put_copy(self, line: TorchLine, job: CopyJob) -> None:
        if not len(job.source):
            return
        call = partial(self._traffic.copy, line, line.kept, job)
        if self._traffic.pieces(job) <= self._few:
            self._in_turn(line, call)
        else:
            line.last = self._issuer.put(call)

    def _put_write(self, line: TorchLine, area: Area, seeds: Words) -> None:
        self._traffic.write(self._settled(line), area, seeds)

    def _put_look(self, line: TorchLine, area: Area, then: OnRead) -> None:
        """`then` is called when a later event is seen reached."""
        self._traffic.look(self._settled(line), area, then)

    def _put_read(self, line: TorchLine, area: Area) -> None:
        self._traffic.read(self._settled(line), area)

    def _in_turn(self, line: TorchLine, call: Callable[[], object]) -> int:
        """Make a call after all that was put on the line. Returns its number where the thread makes
        it, 0 where it was made."""
        if self._issuer.made(line.last):
            call()
            return 0
        line.last = self._issuer.put(call)
        return line.last

    def _settled(self, line: TorchLine) -> TorchLine:
        """The line, when everything that was put on it is issued."""
        self._issuer.settle(line.last)
        return line

    def _check_open(self) -> None:
        super()._check_open()
        self._issuer.check()

    def _end(self) -> None:
        """Wait for all work, then unpin host memory, but not while the driver is in a call.

        After an error of the device every call of CUDA returns that error, also those that unpin.
        """
        self._issuer.close()
        try_all(self._issuer.check, self._finish, self.arena.close)

    def _finish(self) -> None:
        self._accelerator.finish()
        for line in self._lines if not self._issuer.failed else ():
            self._device_events.settle(line)

    def _note_time(self, device_event: DeviceEvent, issued: Issued) -> None:
        """Note when an event was reached. Elapsed times are 32-bit floats, exact only over short
        spans, so the reference event is replaced from time to time."""
        event = issued.event
        since_ms: float = self._zero.elapsed_time(event)
        at_ns = self._zero_ns + round(since_ms * 1e6)
        self._reached_ns[device_event % MOST] = device_event, at_ns
        if since_ms > _SPAN_MS:
            self._zero, self._zero_ns = event, at_ns


def _copy_backend(runtime: Runtime, options: DeviceOptions) -> CopyBackend:
    """The backend of the options. Raises CallerError if a package that it needs is missing."""
    if options.io_backend == "direct":
        has = runtime.batches
        return Direct(*((runtime.batch, runtime.batch_rows) if has else (None, None)))
    try:
        copy_backend: CopyBackend = import_module("._kernel", __package__).Kernel(BLOCKS)
    except ModuleNotFoundError as error:
        raise CallerError(
            f"io_backend kernel: expected the package {error.name}, found none; "
            f"pip install {error.name}, or use io_backend direct"
        ) from None
    return copy_backend
