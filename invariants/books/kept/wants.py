"""The prefixes that a user pinned, and the periods after which copies expire.

Lives here: what each pin locks, worked out from the cached prefixes, and the clock at the end of
each period. Does not contain checks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hicache.core.actions import Outcome, Pinned
from hicache.core.events import (
    BackupDone,
    Event,
    FetchDone,
    Finished,
    LoadDone,
    PinWanted,
    PrefillDone,
    Retracted,
    TimePassed,
    UnpinWanted,
)
from hicache.core.types import Pages, PinId, Tier

from ..kinds import Kind
from ..nodes import NodeBook
from ..pages import PageBook
from ..requests import RequestMirror, tags_of
from ..tags import Tags

_BRING: dict[type, Tier] = {
    PrefillDone: Tier.DEVICE,
    Finished: Tier.DEVICE,
    Retracted: Tier.DEVICE,
    LoadDone: Tier.DEVICE,
    BackupDone: Tier.HOST,
    FetchDone: Tier.HOST,
}


@dataclass
class PinMirror:
    """A pin. held: pages of its prefix that it locks. locked: (slot, pages) of each node."""

    tags: Tags
    tier: Tier
    held: int = 0
    locked: list[tuple[int, Pages]] = field(default_factory=list)


class WantBook:
    """pins: by number. before: pages in each slot that were pinned before this operation. ended:
    the clock at the end of the periods that count. since: in an operation that ends a period, the
    clock before which nothing may have been used last; -1 in others. moved: the pinned prefixes
    that this operation took, gave up or extended, as far as they are held.
    """

    def __init__(self, pages: list[PageBook], kinds: tuple[Kind, ...], nodes: NodeBook) -> None:
        self.pages = pages
        self.kinds = kinds
        self.nodes = nodes
        self.pins: dict[PinId, PinMirror] = {}
        self.before: dict[int, set[int]] = {}
        self.ended: list[int] = []
        self.since = -1
        self.moved: list[Tags] = []

    def begin(self, event: Event, periods: int) -> None:
        """Before an operation is filed."""
        self.before = self.pinned() if self.pins else {}
        self.since = -1
        self.moved = []
        if type(event) is TimePassed:
            self.ended.append(self.nodes.clock)
            if len(self.ended) > periods:
                self.since = self.ended.pop(0)

    def pinned(self) -> dict[int, set[int]]:
        """By slot, the pages that pins lock."""
        found: dict[int, set[int]] = {}
        for pin in self.pins.values():
            for slot, pages in pin.locked:
                found.setdefault(slot, set()).update(pages.tolist())
        return found

    def beside(self, req: RequestMirror | None) -> int:
        """Device pages of full attention that pins lock, without those that the request shares or,
        while it waits, can share without a load: the ones up to a boundary of every component."""
        pinned = {
            tag
            for pin in self.pins.values()
            if pin.tier == Tier.DEVICE
            for tag in pin.tags[: pin.held].tolist()
        }
        if req is None:
            return len(pinned)
        depth = req.boundary if req.admitted else req.expected.device
        return len(pinned.difference(req.tags[:depth].tolist()))

    def flushed(self) -> None:
        """The tree is gone, and all locks with it."""
        for pin in self.pins.values():
            pin.held, pin.locked = 0, []

    def hear(self, event: Event, outcomes: list[Outcome]) -> None:
        """Files the pins that this operation took, gave up, or extended."""
        if type(event) is PinWanted and any(type(item) is Pinned for item in outcomes):
            self.pins[event.pin] = PinMirror(tags_of(event.key), event.tier)
            self._hold(self.pins[event.pin])
        elif type(event) is UnpinWanted and event.pin in self.pins:
            pin = self.pins.pop(event.pin)
            self._add(pin, -1)
            self.moved.append(pin.tags[: pin.held])
        tier = _BRING.get(type(event))
        for pin in self.pins.values() if tier is not None else ():
            if pin.tier == tier:
                self._hold(pin)

    def _hold(self, pin: PinMirror) -> None:
        tags = pin.tags.tolist()
        depth = next((at for at in range(len(tags), pin.held, -1) if self._can(pin, tags, at)), 0)
        if not depth:
            return
        self._add(pin, -1)
        pin.held, pin.locked = depth, []
        for kind in self.kinds:
            slot = pin.tier * len(self.kinds) + kind.at
            for mirror in self.nodes.required(kind.at, tags[depth - 1]):
                pages = mirror.pages[slot]
                if pages is not None:
                    pin.locked.append((slot, pages))
        self._add(pin, 1)
        self.moved.append(pin.tags[: pin.held])

    def _can(self, pin: PinMirror, tags: list[int], depth: int) -> bool:
        """Whether a node ends there, and everything that the boundary requires is on the tier."""
        if tags[depth - 1] not in self.nodes.at:
            return False
        width, resident = len(self.kinds), self.nodes.resident
        return all(
            tag in resident[pin.tier * width + kind.at]
            for kind in self.kinds
            for tag in tags[max(0, depth - kind.need) : depth]
        )

    def _add(self, pin: PinMirror, count: int) -> None:
        for slot, pages in pin.locked:
            book = self.pages[slot]
            book.locks[pages] += count
            for code in set(book.owner[pages].tolist()):
                mirror = self.nodes.by_id.get(code >> 2)
                if mirror is not None:
                    self.nodes.dirty[mirror.id] = mirror
