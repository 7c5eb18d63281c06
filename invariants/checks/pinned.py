"""A pinned prefix stays."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Evicted, Pinned, PinRefused, Unpinned
from hicache.core.events import PinWanted, UnpinWanted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.kinds import Kind
from invariants.books.story import page


class PinnedPrefix(Check):
    name = "PINNED"
    sentence = (
        "A pin is taken exactly if all that pins may ever hold is within the bound, and is "
        "answered with the pages that it holds; it holds what is on its tier of the deepest "
        "boundary within its prefix, and none of that is evicted until it is given up."
    )
    watches = (PinWanted, UnpinWanted, Evicted, Pinned, PinRefused, Unpinned)

    def __init__(self) -> None:
        super().__init__()
        self._taken: dict[int, tuple[Tier, int]] = {}  # tier and pages of each pin
        self._held: dict[int, int] = {}  # pages that it held at the last operation with pins

    def see(self, book: Book, item: Any, view: CoreView) -> None:
        if type(item) is Evicted:
            self._evicted(book, item)
        elif type(item) is PinWanted:
            expected = self._answer(book, item)
            self._said(book, (expected,))
        elif type(item) is UnpinWanted:
            self._taken.pop(item.pin, None)
            self._said(book, (Unpinned(item.pin, self._held.pop(item.pin, 0)),))
        elif type(book.event) not in (PinWanted, UnpinWanted):
            self.fail(f"{type(book.event).__name__}: unexpected {item}")

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history or not (view.pins or self._held):
            return
        expected = {number: pin.held for number, pin in book.wants.pins.items()}
        found = {number: pin.held_pages for number, pin in view.pins.items()}
        if expected != found:
            self.fail(f"pages held by pins: expected {expected}, found {found}")
        self._held |= expected

    def _answer(self, book: Book, item: PinWanted) -> Pinned | PinRefused:
        pages, config = item.key.pages, book.config
        bound = config.pin_host_pages if item.tier == Tier.HOST else config.pin_pages
        for kind in book.kinds:
            others = [size for tier, size in self._taken.values() if tier == item.tier]
            left = (bound[kind.at] if bound else 0) - sum(_most(kind, size) for size in others)
            if _most(kind, pages) > left:
                return PinRefused(item.pin, kind.name, _most(kind, pages), left)
        self._taken[item.pin] = (item.tier, pages)
        pin = book.wants.pins.get(item.pin)
        return Pinned(item.pin, 0 if pin is None else pin.held)

    def _said(self, book: Book, expected: tuple[Any, ...]) -> None:
        told = (Pinned, PinRefused, Unpinned)
        found = tuple(one for one in book.outcomes if type(one) in told)
        if [(type(one), one) for one in found] != [(type(one), one) for one in expected]:
            self.fail(f"{book.event}: expected {expected}, found {found}")

    def _evicted(self, book: Book, item: Evicted) -> None:
        slot = item.tier * book.width + book.index_of(item.component)
        pinned = book.wants.before.get(slot, set())
        for number in item.pages.tolist() if pinned else ():
            if number in pinned:
                pages = book.pages[slot]
                self.fail(f"{pages.where} page {number} is pinned and went", page(pages, number))


def _most(kind: Kind, pages: int) -> int:
    """How many pages of a component a prefix may require."""
    return min(pages, kind.need) if kind.positional else 1


def check() -> PinnedPrefix:
    return PinnedPrefix()
