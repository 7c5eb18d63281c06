"""An operation evicts no more pages than it needs."""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Evicted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.pages import PageBook
from invariants.books.story import pool
from invariants.checks._victims import thinned, wanted


class EvictMinimum(Check):
    name = "EVICT-MIN"
    sentence = (
        "An operation evicts at most the pages that it took beyond the free ones, or was asked to "
        "free, and copies that became useless by this; a match, or a refusal other than "
        "writing_back, evicts nothing."
    )
    watches = (Evicted,)

    def __init__(self) -> None:
        super().__init__()
        self._operation = -1

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        if self._operation == book.operations:
            return
        self._operation = book.operations
        dropped = False
        victims: list[tuple[int, Evicted]] = []
        gone = [0] * len(book.pages)
        for other in book.outcomes:
            if type(other) is Evicted:
                dropped |= other.tier == Tier.DEVICE and not other.demoted
                slot = other.tier * book.width + book.index_of(other.component)
                victims.append((slot, other))
                busy = book.pages[slot].busy[other.pages]
                gone[slot] += len(other.pages) - int(np.count_nonzero(busy))
        short = [wanted(book, slot) if count else 0 for slot, count in enumerate(gone)]
        if any(count > least for count, least in zip(gone, short, strict=True)):
            self._compare(book, victims, _alone(book, victims, len(gone)), dropped)

    def _compare(
        self, book: Book, victims: list[tuple[int, Evicted]], gone: list[int], dropped: bool
    ) -> None:
        for slot, pages in enumerate(book.pages):
            if pages.tier == Tier.HOST and dropped:
                continue  # host pages below a removed node are removed with it
            short = wanted(book, slot)
            if gone[slot] > short + _tombstone(book, victims, slot):
                self.fail(
                    f"{pages.where}: evicted {gone[slot]} pages that nothing else took along; free "
                    f"before {book.free_before[slot]}, missing {short}",
                    pool(pages),
                )


def _alone(book: Book, victims: list[tuple[int, Evicted]], slots: int) -> list[int]:
    """Returns, per pool, the evicted pages that count against the limit.

    Not counted are pages that are retiring, pages evicted together with a victim of another pool
    that was short, and garbage.
    """
    asked = {slot for slot in range(slots) if wanted(book, slot)}
    thin = {  # states above the limit of a path, for which slots had been freed
        (slot, page)
        for slot, item in victims
        for page in item.pages.tolist()
        if thinned(book, book.pages[slot], page)
    }
    extra = [
        slot for slot, item in victims if any((slot, page) in thin for page in item.pages.tolist())
    ]
    asked.update(extra)
    gone = [-extra.count(slot) for slot in range(slots)]
    givers: dict[int, set[int]] = {}  # nodes with evicted copies, by the pools that were short
    for slot, item in victims if book.width > 1 else ():
        if slot in asked:
            nodes = book.pages[slot].giver[item.pages].tolist()
            givers.setdefault(slot, set()).update(nodes)
    dead = _died(book, givers)
    for slot, item in victims:
        pages = book.pages[slot]
        for page in item.pages.tolist():
            node, retiring = int(pages.giver[page]), pages.busy[page] > 0
            beside = any(node in found for at, found in givers.items() if at != slot)
            spare = node in dead or _useless(pages, page) or (slot, page) in thin
            gone[slot] += not (retiring or beside or spare)
    return gone


def _tombstone(book: Book, victims: list[tuple[int, Evicted]], slot: int) -> int:
    """Returns how many pages too many a victim of a windowed component may free: all pages of an
    inner node are evicted together.
    """
    sizes = [len(other.pages) for at, other in victims if at == slot]
    return max(sizes) - 1 if sizes and slot % book.width else 0


def _died(book: Book, givers: dict[int, set[int]]) -> set[int]:
    """Returns the nodes that left the tree because an evicted copy was required by their last live
    boundary.
    """
    nodes = set[int]().union(*givers.values())
    return {
        mirror.id
        for mirror in book.nodes.gone
        if mirror.live_distance or _lost(book, mirror, nodes)
    }


def _lost(book: Book, mirror: NodeMirror, nodes: set[int]) -> bool:
    need = max((kind.need for kind in book.kinds[1:]), default=0)
    step: NodeMirror | None = mirror
    while step is not None and mirror.end_page - step.end_page < need:
        if step.id in nodes:
            return True
        step = step.parent
    return False


def _useless(pages: PageBook, page: int) -> bool:
    """Whether no live boundary required the page any more when it was evicted."""
    return not pages.served[page]


def check() -> EvictMinimum:
    return EvictMinimum()
