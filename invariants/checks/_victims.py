"""Shared code of the checks of evictions: which pools were short of pages, and which victims were
chosen.
"""

from __future__ import annotations

from hicache.core.actions import Cached, Evicted, Refused
from hicache.core.events import AdmitWanted, EvictWanted, PagesWanted
from hicache.core.types import Tier
from invariants.books.book import Book
from invariants.books.mirror import HOST
from invariants.books.pages import NODE, PageBook


def wanted(book: Book, slot: int) -> int:
    """Pages that a pool lacked for what the operation allocated or was refused."""
    pages, event = book.pages[slot], book.event
    needed = sum(len(claimed) for claimed, code in pages.claimed if code & 3 != NODE)
    if type(event) is EvictWanted and (event.tier, event.component) == (pages.tier, pages.name):
        needed += event.pages + book.free_before[slot]
    if pages.tier == Tier.DEVICE:
        needed += sum(
            item.needed if item.component == pages.name else _at_most(book, item)
            for item in book.outcomes
            if type(item) is Refused and item.reason == "writing_back"
        )
    if pages.tier == Tier.HOST:
        needed += kept_free(book, pages.component)
    return max(0, needed - book.free_before[slot])


def kept_free(book: Book, index: int) -> int:
    """Maximum number of host pages that stay free for exchanges."""
    spare = book.config.exchange_pages
    return spare[index] if spare else 0


def _at_most(book: Book, item: Refused) -> int:
    """Upper bound of the pages that a request wanted of a pool, if it was refused because of
    another pool.
    """
    req = book.requests.by_id.get(item.request)
    event = book.event
    tokens = event.length if type(event) is PagesWanted else req.length if req is not None else 0
    return max(-(-tokens // book.page_size), *(kind.slots for kind in book.kinds))


def chosen(book: Book, pages: PageBook, item: Evicted) -> bool:
    """Whether the operation chose its first victim from this pool by the pool's own order.

    False if it was evicted together with another component's copy, or if another pool was short.
    """
    if book.width == 1:
        return True
    if thinned(book, pages, int(item.pages[0])):
        return False
    short = [slot for slot in range(len(book.pages)) if wanted(book, slot)]
    return short == [pages.tier * book.width + pages.component]


def thinned(book: Book, pages: PageBook, page: int) -> bool:
    """Whether the page was a state above the limit of a path that a request has just extended."""
    if not book.kinds[pages.component].per_path:
        return False
    reqs = [book.requests.by_id.get(item.request) for item in book.outcomes if type(item) is Cached]
    tags = [req.tags for req in reqs if req is not None]
    if book.left is not None:
        tags.append(book.left[1])
    tag = int(pages.content[page])
    return any(tag in one.tolist() for one in tags)


def book_of(book: Book, item: Evicted) -> PageBook:
    """The page book of the pool that the victim left."""
    return book.pool(item.tier, book.index_of(item.component))


def sheltered(book: Book) -> set[int]:
    """Nodes that may not have been candidates while the victims were chosen.

    These became host-only or garbage in this operation, or are on the path of a request whose
    admission was requested. An admission locks its path even if it is refused.
    """
    hosted = sum(1 << 3 * kind.at + HOST for kind in book.kinds)
    found = {mirror.id for mirror in book.nodes.dirty.values() if mirror.candidate & hosted}
    found |= book.nodes.sank
    if type(book.event) is not AdmitWanted:
        return found
    req = book.requests.by_id.get(book.event.request)
    for tag in req.known if req is not None else ():
        mirror = book.nodes.at.get(tag)
        if mirror is not None:
            found.add(mirror.id)
    return found
