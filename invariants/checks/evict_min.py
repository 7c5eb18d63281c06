"""An operation evicts no more pages than it needs."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.events import TimePassed
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import pool
from invariants.checks._victims import demoted, thinned, wanted
from invariants.reasons import Reason


class EvictMinimum(Check):
    name = "EVICT-MIN"
    sentence = (
        "An operation evicts at most the pages that it took beyond the free ones, or was asked to "
        "free, and copies that became useless by this; a match, a refusal other than "
        "writing_back, and a lookup without a fetch evict nothing."
    )
    watches = (Evicted,)

    def __init__(self) -> None:
        super().__init__()
        self._operation = -1

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        if type(book.event) is TimePassed or self._operation == book.operations:
            return
        self._operation = book.operations
        victims: list[tuple[int, Evicted]] = []
        gone = [0] * len(book.pages)
        for other in book.outcomes:
            if type(other) is Evicted:
                slot = other.tier * book.width + book.index_of(other.component)
                victims.append((slot, other))
                gone[slot] += len(other.pages)
        asked = [wanted(book, slot) for slot in range(len(gone))]
        if any(count > least for count, least in zip(gone, asked, strict=True)):
            self._compare(book, victims, asked)

    def _compare(self, book: Book, victims: list[tuple[int, Evicted]], asked: list[int]) -> None:
        useless = _useless(book, victims, asked)
        for slot, pages in enumerate(book.pages):
            found = [one for at, one in useless if at == slot]
            gone = sum(len(item.pages) for at, item in victims if at == slot)
            if gone <= asked[slot]:
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
                self.excuse(Reason.UNCUT)


def _useless(
    book: Book, victims: list[tuple[int, Evicted]], asked: list[int]
) -> list[tuple[int, Reason]]:
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
    dead, below = _died(book, givers), _below_deleted(book, victims)
    removed = {mirror.id for mirror in book.nodes.gone}
    found = [(slot, Reason.FREED_SLOT) for slot in extra]

    whole = {  # by tier, the nodes that left it with all components
        (slot // book.width, node)
        for slot, item in victims
        if not slot % book.width
        for node in book.pages[slot].giver[item.pages].tolist()
    }

    def beside(slot: int, node: int) -> bool:
        """Whether another pool's eviction takes the node's pages of this one along: all of them
        where the node leaves the tier or the tree, else those of later components.
        """
        tier = slot // book.width
        every = node in removed or (tier, node) in whole
        return any(
            at != slot and node in nodes and (every or tier * book.width <= at < slot)
            for at, nodes in givers.items()
        )

    for slot, item in victims:
        pages = book.pages[slot]
        for page in item.pages.tolist():
            node = int(pages.giver[page])
            if page in pages.retiring:
                found.append((slot, Reason.RETIRING))
            elif beside(slot, node):
                found.append((slot, Reason.OTHER_POOL))
            elif node in dead:
                found.append((slot, Reason.LAST_BOUNDARY))
            elif pages.tier == Tier.HOST and node in below:
                found.append((slot, Reason.BELOW_DELETED))
            elif (slot, page) in thin:
                found.append((slot, Reason.THINNED))
    return found


def _below_deleted(book: Book, victims: list[tuple[int, Evicted]]) -> set[int]:
    """Returns the removed nodes that were deleted from device, and those below them: they cannot be
    matched without their prefix.
    """
    deleted = {
        int(book.pages[slot].giver[page])
        for slot, item in victims
        if item.tier == Tier.DEVICE and not demoted(book, item)
        for page in item.pages.tolist()
    }
    found = set()
    for mirror in book.nodes.gone:
        step: NodeMirror | None = mirror
        while step is not None and step.id not in deleted:
            step = step.parent
        if step is not None:
            found.add(mirror.id)
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
