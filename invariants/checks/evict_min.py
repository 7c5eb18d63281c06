"""An operation evicts no more pages than it needs."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import pool
from invariants.checks._victims import THINNED, demoted, thinned, wanted


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
                dropped = dropped or (other.tier == Tier.DEVICE and not demoted(book, other))
                slot = other.tier * book.width + book.index_of(other.component)
                victims.append((slot, other))
                gone[slot] += len(other.pages)
        asked = [wanted(book, slot) for slot in range(len(gone))]
        if any(count > least for count, least in zip(gone, asked, strict=True)):
            self._compare(book, victims, asked, dropped)

    def _compare(
        self, book: Book, victims: list[tuple[int, Evicted]], asked: list[int], dropped: bool
    ) -> None:
        useless = _useless(book, victims, asked)
        for slot, pages in enumerate(book.pages):
            found = [one for at, one in useless if at == slot]
            gone = sum(len(item.pages) for at, item in victims if at == slot)
            if gone <= asked[slot]:
                continue
            if pages.tier == Tier.HOST and dropped:
                self.excuse("host pages below what was deleted")
                continue
            over = gone - len(found) - asked[slot]
            if over > _tombstone(book, victims, slot):
                self.fail(
                    f"{pages.where}: evicted {gone - len(found)} pages that nothing else took "
                    f"along; free before {book.free_before[slot]}, missing {asked[slot]}",
                    pool(pages),
                )
            for reason in dict.fromkeys(found):
                self.excuse(reason)
            if over > 0:
                self.excuse("a tombstone is not cut")


def _useless(
    book: Book, victims: list[tuple[int, Evicted]], asked: list[int]
) -> list[tuple[int, str]]:
    """Returns the evicted pages that do not count against the limit: their pool, and the reason."""
    thin = {  # states above the limit of a path, for which slots had been freed
        (slot, page)
        for slot, item in victims
        for page in item.pages.tolist()
        if thinned(book, book.pages[slot], page)
    }
    extra = [
        slot for slot, item in victims if any((slot, page) in thin for page in item.pages.tolist())
    ]
    short = {slot for slot, least in enumerate(asked) if least}.union(extra)
    givers: dict[int, set[int]] = {}  # nodes with evicted copies, by the pools that were short
    for slot, item in victims if book.width > 1 else ():
        if slot in short:
            nodes = book.pages[slot].giver[item.pages].tolist()
            givers.setdefault(slot, set()).update(nodes)
    dead = _died(book, givers)
    found = [(slot, "a slot freed for a state above the limit") for slot in extra]
    for slot, item in victims:
        pages = book.pages[slot]
        for page in item.pages.tolist():
            node = int(pages.giver[page])
            if pages.busy[page]:
                found.append((slot, "retiring pages"))
            elif any(node in nodes for at, nodes in givers.items() if at != slot):
                found.append((slot, "pages of a node that another pool evicted"))
            elif node in dead:
                found.append((slot, "pages of a node that lost its last boundary"))
            elif not pages.served[page]:
                found.append((slot, "pages that no boundary required"))
            elif (slot, page) in thin:
                found.append((slot, THINNED))
    return found


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


def check() -> EvictMinimum:
    return EvictMinimum()
