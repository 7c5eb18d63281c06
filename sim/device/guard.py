"""Checks in front of a device with real bytes: hazards, overwritten targets, poisoned free pages.

write_pattern  overwrites the targets of a load just before the copy, so that bytes that the copy
          did not write are recognised
poison    overwrites a page when it becomes free. Reading it is an error. It must still hold
          the poison when it is next written or swept; if not, something wrote outside its
          own pages
"""

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from hicache.core.actions import Outcome
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from hicache.devices.base import (
    Access,
    Area,
    Bytes,
    CopyJob,
    Device,
    DeviceEvent,
    Direction,
    Stream,
    Words,
)
from hicache.runtime.controller import COMPUTE, WRITE

from ..errors import HazardError, WrongBytesError
from .hazards import HazardDevice, Hazards

_Place = tuple[Tier, str]
# The stream that poisons: on device the model's, which loads wait for; on host the write stream.
_POISONER = {Tier.DEVICE: COMPUTE, Tier.HOST: WRITE}


class _Look(NamedTuple):
    """A free page that is looked at before its next use. expected, actual: a digest each, once
    known.
    """

    place: _Place
    page: int
    why: str
    expected: list[bytes]
    actual: list[bytes]


class Guard(HazardDevice[Device]):
    """See the module. spoiled: pages scribbled. intact: pages that still held their poison."""

    def __init__(self, inner: Device, hazards: Hazards) -> None:
        super().__init__(inner, hazards)
        self._drawn = 0
        self._poisoned: dict[_Place, dict[int, list[bytes]]] = {}
        self._compared: list[_Look] = []
        self.spoiled = 0
        self.intact = 0

    def copy(self, stream: Stream, job: CopyJob) -> None:
        load = job.direction is Direction.HOST_TO_DEVICE
        near, far = job.near, job.far
        self._use(stream, near, "r", job.why)
        self._use(stream, far, "w", job.why)
        count = len(far.pages)
        if load and count:
            self._hazards.access(stream, far, "w", f"{job.why}, write_pattern")
            self.write_pattern(stream, far, self._seeds(count))
            self.spoiled += count
        super().copy(stream, job)

    def access(self, stream: Stream, access: Access) -> None:
        self._use(stream, access.area, access.mode, access.why)
        super().access(stream, access)

    def freed(self, tier: Tier, component: str, pages: Pages) -> None:
        """Poisons pages that became free. Raises HazardError if an unordered access still
        uses one.
        """
        if not len(pages):
            return
        area = self._layers((tier, component), pages)
        stream = self.stream(_POISONER[tier])
        self._hazards.access(stream, area, "w", "poison of freed pages")
        self.write_pattern(stream, area, self._seeds(len(pages)))
        values: list[list[bytes]] = [[] for _ in pages]
        self._look(stream, area, values)
        self._poisoned.setdefault(area.place, {}).update(zip(pages.tolist(), values, strict=True))

    def sweep(self) -> tuple[DeviceEvent, ...]:
        """Queues a comparison of every free page. `check` has the result when the events are
        reached.
        """
        device_events = []
        for place, poisoned in self._poisoned.items():
            stream = self.stream(_POISONER[place[0]])
            pages = np.array(list(poisoned), dtype=np.int64)
            self._compare(stream, self._layers(place, pages), "the sweep")
            device_events.append(self.record(stream))
        return tuple(device_events)

    def check(self) -> bool:
        """Whether all queued comparisons are done. Raises WrongBytesError for the first free page
        that lost its poison.
        """
        left = []
        for look in self._compared:
            if not look.actual or not look.expected:
                left.append(look)
            elif look.actual == look.expected:
                self.intact += 1
            else:
                raise WrongBytesError(
                    f"{look.place[0].name.lower()} page {look.page} of {look.place[1]} was written "
                    f"while it was free; seen before {look.why}",
                    "POISON",
                    About("page", look.page, int(look.place[0]), look.place[1]),
                )
        self._compared = left
        return not left

    def _use(self, stream: Stream, area: Area, mode: Literal["r", "w"], why: str) -> None:
        poisoned = self._poisoned.get(area.place)
        if not poisoned:
            return
        free = [page for page in area.pages.tolist() if page in poisoned]
        if not free:
            return
        if mode == "r":
            raise HazardError(
                f"read by {why!r}: expected pages that somebody has, found free "
                f"{area.tier.name.lower()} pages {free[:8]} of {area.component} "
                f"({len(free)} in all)",
                "READ OF FREE",
                About("page", free[0], int(area.tier), area.component),
            )
        self._compare(stream, self._layers(area.place, np.array(free, dtype=np.int64)), repr(why))
        for page in free:
            del poisoned[page]

    def _compare(self, stream: Stream, area: Area, why: str) -> None:
        poisoned = self._poisoned[area.place]
        looks = [_Look(area.place, page, why, poisoned[page], []) for page in area.pages.tolist()]
        self._compared += looks
        self._look(stream, area, [look.actual for look in looks])

    def _look(self, stream: Stream, area: Area, values: Sequence[list[bytes]]) -> None:
        """Queues a read of the pages; the digest of each goes into its list when the device gets
        there.
        """

        def keep(arrays: tuple[Bytes, ...]) -> None:
            for position, digests in enumerate(values):
                digests.append(_seal(arrays, position))

        self.read(stream, area, keep)

    def _layers(self, place: _Place, pages: Pages) -> Area:
        """The area of the pages in all layers."""
        return Area(*place, pages, (0, self.layers))

    def _seeds(self, count: int) -> Words:
        first = self._drawn
        self._drawn += count
        numbers = np.arange(first, first + count, dtype=np.uint64)
        return numbers ^ np.uint64(0xDEAD << 48)


class FreedPages:
    """An observer that tells a guard which pages the core freed, even if they were allocated again
    in the same call.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._known: dict[_Place, Pages] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        """Does nothing: pages are freed only with the outcomes."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for tier in (Tier.DEVICE, Tier.HOST):
            for index, component in enumerate(view.config.components):
                generation = view.pool(tier, index).generation
                known = self._known.get((tier, component))
                if known is not None:
                    self._guard.freed(tier, component, np.flatnonzero(generation != known))
                self._known[tier, component] = generation.copy()


def _seal(arrays: tuple[Bytes, ...], position: int) -> bytes:
    """Returns the SHA-256 of one page of a peek."""
    digest = hashlib.sha256()
    for block in arrays:
        digest.update(np.ascontiguousarray(block[:, position]).data)
    return digest.digest()
