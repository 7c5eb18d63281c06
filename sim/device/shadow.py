"""The shadow of a device with real bytes: hazards, spoiled targets, poisoned free pages.

Lives here: what a check adds in front of any `Inspectable` device, in the order of its streams.
Must not live here: which device it is, when anything runs, or who owns a page.

    scribble  a load's targets are overwritten just before the copy, so that bytes which the copy
              did not bring are nobody's
    poison    a page that becomes free is overwritten; reading it is an error at once, and it must
              still hold its poison when it is next written or swept: whoever copied or wrote beside
              his own pages is found
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from hicache.core.actions import Outcome
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from hicache.devices.base import (
    Area,
    Bytes,
    CopyJob,
    Direction,
    Inspectable,
    InspectableFront,
    Mark,
    Stream,
    Touch,
    Words,
)
from hicache.runtime.controller import COMPUTE, WRITE

from ..errors import HazardError, WrongBytesError
from .hazards import HazardDevice, Hazards

_Place = tuple[Tier, str]
# Whose stream poisons: on device the model's, which loads wait for; on host the one that writes it.
_POISONER = {Tier.DEVICE: COMPUTE, Tier.HOST: WRITE}


class _Look(NamedTuple):
    """A free page before it is used again. expected, found: a digest each, once it is known."""

    place: _Place
    page: int
    why: str
    expected: list[bytes]
    found: list[bytes]


@dataclass(frozen=True, slots=True)
class ShadowOptions:
    """What is done beside the order of accesses. seed: of the bytes that nobody else has."""

    scribble: bool = True
    poison: bool = True
    seed: int = 0


class Shadow(InspectableFront[Inspectable], HazardDevice[Inspectable]):
    """See the module. `spoiled` pages were scribbled, `intact` ones found with their poison."""

    def __init__(
        self, inner: Inspectable, hazards: Hazards, options: ShadowOptions | None = None
    ) -> None:
        super().__init__(inner, hazards)
        self._options = options or ShadowOptions()
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
        if load and self._options.scribble and count:
            self._hazards.access(stream, far, "w", f"{job.why}, scribble")
            self.scribble(stream, far, self._seeds(count))
            self.spoiled += count
        super().copy(stream, job)

    def touch(self, stream: Stream, touch: Touch) -> None:
        self._use(stream, touch.area, touch.mode, touch.why)
        super().touch(stream, touch)

    def freed(self, tier: Tier, component: str, pages: Pages) -> None:
        """Nobody has these pages any more. Raises HazardError where somebody still uses one."""
        if not self._options.poison or not len(pages):
            return
        area = self._whole((tier, component), pages)
        stream = self.stream(_POISONER[tier])
        self._hazards.access(stream, area, "w", "poison of freed pages")
        self.scribble(stream, area, self._seeds(len(pages)))
        held: list[list[bytes]] = [[] for _ in pages]
        self._look(stream, area, held)
        self._poisoned.setdefault(area.place, {}).update(zip(pages.tolist(), held, strict=True))

    def sweep(self) -> tuple[Mark, ...]:
        """Queue a look at every page that is free. Behind the marks, `check` knows of it."""
        marks = []
        for place, poisoned in self._poisoned.items():
            stream = self.stream(_POISONER[place[0]])
            pages = np.array(list(poisoned), dtype=np.int64)
            self._compare(stream, self._whole(place, pages), "the sweep")
            marks.append(self.record(stream))
        return tuple(marks)

    def check(self) -> bool:
        """Whether all that was looked at is known. Raises WrongBytesError for the first free page
        that did not keep its poison."""
        left = []
        for look in self._compared:
            if not look.found or not look.expected:
                left.append(look)
            elif look.found == look.expected:
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
        self._compare(stream, self._whole(area.place, np.array(free, dtype=np.int64)), repr(why))
        for page in free:
            del poisoned[page]

    def _compare(self, stream: Stream, area: Area, why: str) -> None:
        poisoned = self._poisoned[area.place]
        looks = [_Look(area.place, page, why, poisoned[page], []) for page in area.pages.tolist()]
        self._compared += looks
        self._look(stream, area, [look.found for look in looks])

    def _look(self, stream: Stream, area: Area, held: Sequence[list[bytes]]) -> None:
        """Digests of the pages, each put into its list once the device gets there."""

        def keep(found: tuple[Bytes, ...]) -> None:
            for position, digests in enumerate(held):
                digests.append(_seal(found, position))

        self.peek(stream, area, keep)

    def _whole(self, place: _Place, pages: Pages) -> Area:
        """The pages in all layers."""
        return Area(*place, pages, (0, self.layers))

    def _seeds(self, count: int) -> Words:
        first = self._drawn
        self._drawn += count
        numbers = np.arange(first, first + count, dtype=np.uint64)
        return numbers ^ np.uint64((0xDEAD << 48) + (self._options.seed << 32))


class FreedPages:
    """An observer that tells a shadow which pages the core let go of, though it may have given
    them to somebody else in the same call."""

    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow
        self._known: dict[_Place, Pages] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        """Nothing is freed before the core has answered."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for tier in (Tier.DEVICE, Tier.HOST):
            for index, component in enumerate(view.config.components):
                generation = view.pool(tier, index).generation
                known = self._known.get((tier, component))
                if known is not None:
                    self._shadow.freed(tier, component, np.flatnonzero(generation != known))
                self._known[tier, component] = generation.copy()


def _seal(found: tuple[Bytes, ...], position: int) -> bytes:
    """SHA-256 of one page of a peek."""
    digest = hashlib.sha256()
    for block in found:
        digest.update(np.ascontiguousarray(block[:, position]).data)
    return digest.digest()
