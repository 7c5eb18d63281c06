"""No more is evicted than was missing."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.checks._victims import wanted
from invariants.pages import PageBook
from invariants.shadow import SERVES, Shadow


class EvictMinimum(Check):
    name = "EVICT-MIN"
    sentence = (
        "An operation evicts at most the pages that it took beyond those free, or was asked to "
        "free, and what could serve nobody without them; nothing for a match or a refusal other "
        "than draining."
    )
    watches = (Evicted,)

    def __init__(self) -> None:
        self._operation = -1

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        if self._operation == book.operations:
            return
        self._operation = book.operations
        gone = [0] * len(book.pages)
        short = [wanted(book, slot) for slot in range(len(book.pages))]
        asked = {slot for slot, pages in enumerate(short) if pages}
        dropped = False
        victims: list[tuple[int, Evicted]] = []
        for other in book.outcomes:
            if type(other) is Evicted:
                dropped |= other.tier == Tier.DEVICE and not other.demoted
                slot = other.tier * book.width + book.index_of(other.component)
                victims.append((slot, other))
        with_others = _tags(book, victims, asked)
        dead = _died(book, with_others)
        for slot, other in victims:
            pages = book.pages[slot]
            for page, tag in zip(other.pages.tolist(), _content(pages, other), strict=True):
                retiring = pages.busy[page] > 0
                beside = any(tag in tags for at, tags in with_others.items() if at != slot)
                gone[slot] += not (retiring or beside or tag in dead or _useless(pages, page))
        for slot, pages in enumerate(book.pages):
            if pages.tier == Tier.HOST and dropped:
                continue  # pages on host below a dropped node go with it
            if gone[slot] > short[slot]:
                self.fail(
                    f"{pages.where}: evicted {gone[slot]} pages that nothing else took along; free "
                    f"before {book.free_before[slot]}, missing {short[slot]}"
                )


def _content(pages: PageBook, item: Evicted) -> list[int]:
    found: list[int] = pages.content[item.pages].tolist()
    return found


def _tags(book: Book, victims: list[tuple[int, Evicted]], asked: set[int]) -> dict[int, set[int]]:
    """Per pool that was short, the prefixes whose copies went."""
    found: dict[int, set[int]] = {}
    for slot, item in victims if book.width > 1 else ():
        if slot in asked:
            found.setdefault(slot, set()).update(_content(book.pages[slot], item))
    return found


def _died(book: Book, evicted: dict[int, set[int]]) -> set[int]:
    """Prefixes of nodes that left the tree because the copies that went were of the boundaries that
    they served: what was live among them required one of those copies."""
    found: set[int] = set()
    for shadow in book.nodes.gone:
        if not any(slot % book.width for slot in evicted):
            break
        if shadow.near or _lost(book, shadow, evicted):
            found.update(shadow.tags.tolist())
    return found


def _lost(book: Book, shadow: Shadow, evicted: dict[int, set[int]]) -> bool:
    for slot, tags in evicted.items():
        need = book.kinds[slot % book.width].need
        step: Shadow | None = shadow
        while step is not None and slot % book.width and shadow.end - step.end < need:
            if not tags.isdisjoint(step.tags.tolist()):
                return True
            step = step.parent
    return False


def _useless(pages: PageBook, page: int) -> bool:
    """Whether no live boundary required it any more when it went: whatever went first saw to it."""
    return bool(pages.rank[page] < SERVES)


def check() -> EvictMinimum:
    return EvictMinimum()
