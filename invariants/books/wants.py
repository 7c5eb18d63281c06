"""What pins lock, as the core notes it for each pin.

Lives here: the locks of pinned prefixes on the page books. What a pin may hold is for the
specification to say; here every lock has a holder that knows of it. Does not contain checks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hicache.core.types import Pages, PinId
from hicache.core.view import CoreView

from .nodes import NodeBook
from .pages import PageBook
from .requests import tags_of
from .tags import Tags


@dataclass
class PinMirror:
    """A pin. held: pages of its prefix that it locks. locked: (slot, pages) of each node."""

    tags: Tags
    held: int = 0
    locked: list[tuple[int, Pages]] = field(default_factory=list)


class WantBook:
    """pins: by number. moved: the pinned prefixes that this operation took, gave up or extended, as
    far as they are held.
    """

    def __init__(self, pages: list[PageBook], nodes: NodeBook) -> None:
        self.pages = pages
        self.nodes = nodes
        self.pins: dict[PinId, PinMirror] = {}
        self.moved: list[Tags] = []

    def pinned(self) -> dict[int, set[int]]:
        """By slot, the pages that pins lock."""
        found: dict[int, set[int]] = {}
        for pin in self.pins.values():
            for slot, pages in pin.locked:
                found.setdefault(slot, set()).update(pages.tolist())
        return found

    def flushed(self) -> None:
        """The tree is gone, and all locks with it."""
        for pin in self.pins.values():
            pin.held, pin.locked = 0, []

    def hear(self, view: CoreView) -> None:
        """Files the pins that this operation took, gave up, or extended."""
        for number in [number for number in self.pins if number not in view.pins]:
            pin = self.pins.pop(number)
            self._add(pin, -1)
            self.moved.append(pin.tags[: pin.held])
        for number, record in view.pins.items():
            pin = self.pins.setdefault(number, PinMirror(tags_of(record.key)))
            if pin.held == record.held_pages:
                continue
            self._add(pin, -1)
            pin.held, pin.locked = record.held_pages, []
            for index, entries in enumerate(record.receipt.locked):
                for node, tier in entries:
                    pages = node.pages[tier][index]
                    if pages is not None:
                        pin.locked.append((tier * self.nodes.width + index, pages))
            self._add(pin, 1)
            self.moved.append(pin.tags[: pin.held])

    def _add(self, pin: PinMirror, count: int) -> None:
        for slot, pages in pin.locked:
            book = self.pages[slot]
            book.locks[pages] += count
            for code in set(book.owner[pages].tolist()):
                mirror = self.nodes.by_id.get(code >> 2)
                if mirror is not None:
                    self.nodes.dirty[mirror.id] = mirror
