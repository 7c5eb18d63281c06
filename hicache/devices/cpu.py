"""The CPU device: numpy memory, real copies, and one worker thread per stream.

    caller thread   issue ---- job, job, event, job ---->  queue of the stream, first in first out
    worker thread   take, run; an event sets its event; a wait blocks this stream only

A stream waits only for events that were recorded before the wait was issued. So there is no cycle
of waits, and every stream finishes. All methods but `digest` must be called from one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Self

from hicache.core.errors import CallerError, CoreBug
from hicache.core.types import Tier
from hicache.memory.host import try_all
from hicache.memory.layouts import Words
from hicache.memory.pools import Arena
from hicache.models.base import ModelDescription

from .base import MOST, Area, CopyJob, DeviceEvent, DeviceOptions, OnRead, Stream, Streamed

_DEFAULTS = DeviceOptions()


class _Line:
    """One stream: its worker, and the worker's jobs."""

    __slots__ = ("jobs", "worker")

    def __init__(self, name: str, run: Callable[[_Line], None]) -> None:
        self.jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.worker = threading.Thread(target=run, args=(self,), name=f"cpu-{name}", daemon=True)
        self.worker.start()


class CpuDevice(Streamed[_Line]):
    """Implements `Device`. Close it, or use it in a `with` statement, to end its threads."""

    def __init__(
        self,
        model: ModelDescription,
        page_size: int,
        device_pages: Mapping[str, int],
        host_pages: Mapping[str, int],
        options: DeviceOptions = _DEFAULTS,
    ) -> None:
        """device_pages, host_pages: by component. Raises CallerError as `Arena` does."""
        tiers = {Tier.DEVICE: device_pages, Tier.HOST: host_pages}
        self._begin(Arena(model, page_size, tiers, **options.of_arena), options)

    @classmethod
    def over(cls, arena: Arena, options: DeviceOptions = _DEFAULTS) -> Self:
        """A device for pools that are there already. It closes them."""
        device = cls.__new__(cls)
        device._begin(arena, options)
        return device

    def _begin(self, arena: Arena, options: DeviceOptions) -> None:
        self.arena = arena
        super().__init__(arena, options)
        self._timer = options.timer
        self._device_events = 0
        self._unreached: dict[DeviceEvent, threading.Event] = {}
        self._crashes: list[Exception] = []

    def record(self, stream: Stream) -> DeviceEvent:
        line = self._line(stream)
        device_event = DeviceEvent(self._device_events)
        self._device_events += 1
        reached = threading.Event()
        self._unreached[device_event] = reached
        line.jobs.put(partial(self._reach, device_event, reached))
        return device_event

    def wait(self, stream: Stream, device_event: DeviceEvent) -> None:
        line = self._line(stream)
        self._check_event(device_event)
        reached = self._unreached.get(device_event)
        if reached is not None:
            line.jobs.put(reached.wait)

    def query(self, device_event: DeviceEvent) -> bool:
        self._check_event(device_event)
        self._check_crashes()
        return device_event not in self._unreached

    def synchronize(self, device_event: DeviceEvent) -> None:
        """Block the caller until the event is reached."""
        self._check_event(device_event)
        reached = self._unreached.get(device_event)
        if reached is not None:
            reached.wait()
        self._check_crashes()

    def follow(self, stream: Stream) -> None:
        """Does nothing: what the caller computed with this memory has ended before it calls."""

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        return self.arena.digest(tier, component, page)

    def _make_line(self, name: str) -> _Line:
        return _Line(name, self._run)

    def _put_copy(self, line: _Line, job: CopyJob) -> None:
        line.jobs.put(partial(self._copy, job))

    def _put_write(self, line: _Line, area: Area, seeds: Words) -> None:
        line.jobs.put(partial(self._write, area, seeds))

    def _put_look(self, line: _Line, area: Area, then: OnRead) -> None:
        """`then` is called on the worker thread."""
        line.jobs.put(partial(self._look, area, then))

    def _put_read(self, line: _Line, area: Area) -> None:
        """Nothing to do."""

    def _end(self) -> None:
        """Wait until all issued work is done, then end the threads."""
        for line in self._lines:
            line.jobs.put(None)
        for line in self._lines:
            line.worker.join()
        try_all(self._check_crashes, self.arena.close)

    def _run(self, line: _Line) -> None:
        """Run the jobs of a stream, on its worker. Any exception is a defect, which the next call
        raises."""
        while (job := line.jobs.get()) is not None:
            try:
                job()
            except Exception as crash:
                self._crashes.append(crash)

    def _reach(self, device_event: DeviceEvent, reached: threading.Event) -> None:
        if self._timer is not None:
            self._reached_ns[device_event % MOST] = device_event, self._timer()
        # Last, because the caller takes an event that is missing here as reached.
        del self._unreached[device_event]
        reached.set()

    def _copy(self, job: CopyJob) -> None:
        here, there = job.direction.ends
        self.arena.copy(job.component, (here, job.source), (there, job.target), job.layers)

    def _write(self, area: Area, seeds: Words) -> None:
        for number, pool in enumerate(self.arena.pools(area.tier, area.component)):
            chosen = pool.plan.layers_in(*area.layers)
            stamped = pool.plan.stamped(seeds, number, chosen)
            pool.view[chosen.start : chosen.stop, area.pages] = stamped

    def _look(self, area: Area, then: OnRead) -> None:
        read = []
        for pool in self.arena.pools(area.tier, area.component):
            chosen = pool.plan.layers_in(*area.layers)
            read.append(pool.view[chosen.start : chosen.stop, area.pages])
        then(tuple(read))

    def _check_open(self) -> None:
        super()._check_open()
        self._check_crashes()

    def _check_event(self, device_event: DeviceEvent) -> None:
        if not 0 <= device_event < self._device_events:
            raise CallerError(
                f"event: expected one that this device recorded, found {device_event}"
            )

    def _check_crashes(self) -> None:
        if self._crashes:
            raise CoreBug("a device worker crashed") from self._crashes[0]
