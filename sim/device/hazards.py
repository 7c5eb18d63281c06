"""Hazard detection on pages: finds conflicting accesses without a defined order, at any timing.

The detector sees only the calls that issue work, so it works in front of any device.

    an access of stream s is ordered after one of stream t at tick k  <=>  clock_s[t] >= k

`record` copies the stream's clock into an event. `wait` merges the event into the stream's clock. A
`query` that returns True merges the event into the host's clock. Every issued access merges the
host's clock into the stream's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.types import Tier
from hicache.devices.base import Access, Area, CopyJob, D, DeviceEvent, Front, Stream

from ..errors import HazardError

_Mode = Literal["r", "w"]
_SUBJECT = re.compile(r"\b(request|transfer)s? (\d+)")
_Place = tuple[Tier, str]
_REMEMBERED = 65_536
# By the earlier access and the unordered one after it: read after write, and so on.
RULES = {("w", "r"): "RAW", ("r", "w"): "WAR", ("w", "w"): "WAW"}


@dataclass(slots=True)
class _StreamClock:
    """One stream: its clock, including its own ticks, and the reasons of its last accesses by
    tick."""

    name: str
    index: int
    clock: list[int]
    whys: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Accesses:
    """The last access of each page of one pool by one stream in one mode. ticks: int32[layers,
    pages]. latest: the highest of all."""

    ticks: NDArray[np.int32]
    latest: int = 0


_Log = dict[_Mode, list[_Accesses | None]]  # by mode, then by stream


def places_of(config: Config) -> dict[_Place, int]:
    """Returns the number of pages of each pool of a core with this configuration."""
    return {
        (tier, component): pages[index]
        for index, component in enumerate(config.components)
        for tier, pages in ((Tier.DEVICE, config.device_pages), (Tier.HOST, config.host_pages))
    }


class Hazards:
    """The detector, for at most `streams` streams. checked: number of accesses."""

    def __init__(self, capacities: Mapping[_Place, int], layers: int, streams: int = 4) -> None:
        self.checked = 0
        self._size = streams
        self._clocks: dict[Stream, _StreamClock] = {}
        self._host = [0] * streams
        self._device_events: dict[DeviceEvent, tuple[int, ...]] = {}
        self._layers = layers
        self._capacities = dict(capacities)
        self._logs: dict[_Place, _Log] = {
            place: {"r": [None] * streams, "w": [None] * streams} for place in capacities
        }

    def stream(self, stream: Stream, name: str) -> None:
        """Registers a stream. Raises HazardError if there are too many."""
        if stream in self._clocks:
            return
        if len(self._clocks) == self._size:
            raise HazardError(f"hazard detector: made for {self._size} streams, {name} is one more")
        self._clocks[stream] = _StreamClock(name, len(self._clocks), [0] * self._size)

    def record(self, stream: Stream, device_event: DeviceEvent) -> None:
        self._device_events[device_event] = tuple(self._clocks[stream].clock)

    def wait(self, stream: Stream, device_event: DeviceEvent) -> None:
        _merge(self._clocks[stream].clock, self._device_events[device_event])

    def observed(self, device_event: DeviceEvent) -> None:
        """Records that the host has seen the event reached."""
        _merge(self._host, self._device_events[device_event])

    def access(self, stream: Stream, area: Area, mode: _Mode, why: str) -> None:
        """Records an issued access. Raises HazardError if it conflicts with an earlier one."""
        own = self._clocks[stream]
        clock, index = own.clock, own.index
        _merge(clock, self._host)
        self.checked += 1
        if not len(area.pages):
            return
        log = self._logs[area.tier, area.component]
        written, read = log["w"], log["r"]
        for other in self._clocks.values():
            at = other.index
            if at == index:
                continue
            before = written[at]
            if before is not None and before.latest > clock[at]:
                self._ordered(own, other, before, area, ("w", mode), why)
            before = read[at] if mode == "w" else None
            if before is not None and before.latest > clock[at]:
                self._ordered(own, other, before, area, ("r", mode), why)
        tick = clock[index] + 1
        clock[index] = tick
        own.whys[tick] = why
        own.whys.pop(tick - _REMEMBERED, None)
        mine = log[mode][index]
        if mine is None:
            ticks = np.zeros((self._layers, self._capacities[area.place]), dtype=np.int32)
            mine = log[mode][index] = _Accesses(ticks)
        mine.latest = tick
        mine.ticks[slice(*area.layers), area.pages] = tick

    def _ordered(
        self,
        own: _StreamClock,
        other: _StreamClock,
        before: _Accesses,
        area: Area,
        modes: tuple[_Mode, _Mode],
        why: str,
    ) -> None:
        seen = own.clock[other.index]
        last = before.ticks[slice(*area.layers), area.pages]
        if not np.count_nonzero(last > seen):
            return
        late = (last > seen).any(axis=0)
        first = int(last[:, late].max())
        earlier = other.whys.get(first, "an access too old to be named")
        raise HazardError(
            f"{ {'w': 'write', 'r': 'read'}[modes[1]] } by {why!r} on stream {own.name} is not "
            f"ordered after the {'write' if modes[0] == 'w' else 'read'} by {earlier!r} on stream "
            f"{other.name}: {area.tier.name.lower()} pages {area.pages[late].tolist()[:8]} of "
            f"{area.component} ({int(late.sum())} in all), layer groups "
            f"{area.layers[0]}..{area.layers[1] - 1}",
            RULES[modes],
            About("page", int(area.pages[late][0]), int(area.tier), area.component),
            # the requests and the transfers that the reasons name
            *dict.fromkeys(
                About(kind, int(number)) for kind, number in _SUBJECT.findall(f"{why} {earlier}")
            ),
        )


def _merge(clock: list[int], other: tuple[int, ...] | list[int]) -> None:
    for index, tick in enumerate(other):
        if tick > clock[index]:
            clock[index] = tick


class HazardDevice(Front[D]):
    """A device that reports every issued call to a detector, then passes it on."""

    def __init__(self, inner: D, hazards: Hazards) -> None:
        super().__init__(inner)
        self._hazards = hazards

    def stream(self, name: str) -> Stream:
        stream = self.inner.stream(name)
        self._hazards.stream(stream, name)
        return stream

    def record(self, stream: Stream) -> DeviceEvent:
        device_event = self.inner.record(stream)
        self._hazards.record(stream, device_event)
        return device_event

    def wait(self, stream: Stream, device_event: DeviceEvent) -> None:
        self._hazards.wait(stream, device_event)
        self.inner.wait(stream, device_event)

    def query(self, device_event: DeviceEvent) -> bool:
        reached = self.inner.query(device_event)
        if reached:
            self._hazards.observed(device_event)
        return reached

    def copy(self, stream: Stream, job: CopyJob) -> None:
        self._hazards.access(stream, job.near, "r", job.why)
        self._hazards.access(stream, job.far, "w", job.why)
        self.inner.copy(stream, job)

    def access(self, stream: Stream, access: Access) -> None:
        self._hazards.access(stream, access.area, access.mode, access.why)
        self.inner.access(stream, access)
