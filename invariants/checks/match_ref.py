"""Matches equal those of a brute-force search."""

from __future__ import annotations

from hicache.core.actions import Admitted, Matched
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.requests import RequestMirror
from invariants.books.story import request
from invariants.reasons import Reason


class MatchReference(Check):
    name = "MATCH-REF"
    sentence = (
        "A match finds the deepest boundary that is valid for every component, on device and on "
        "any tier, as brute force over all cached positions does, and it changes nothing."
    )
    watches = (Matched, Admitted)

    def see(self, book: Book, item: Matched | Admitted, view: CoreView) -> None:
        req = book.requests.by_id.get(item.request)
        if req is None:
            self.fail(f"request {item.request} is answered but unknown", request(item.request))
        wanted = req.expected
        host, loaded = wanted.best - wanted.device, wanted.lacking
        if type(item) is Matched:
            if view.touched:
                self.fail(f"a match touched nodes {list(view.touched)}", request(item.request))
        else:
            config = book.config
            quota = config.load_quota_pages
            least = max(1, config.load_threshold_pages)
            if not req.may_load or host < least or (quota and host > quota):
                host = 0
            elif not item.host_pages and _too_dear(book, req):
                self.excuse(Reason.NO_ROOM_TO_LOAD)
                host = 0
            found = item.loaded_pages if host else loaded  # type: ignore[union-attr]
            if found != loaded or item.matched_pages != wanted.depths[0]:  # type: ignore[union-attr]
                self.fail(
                    f"request {item.request}: expected {loaded} pages of {_names(book)} loaded "
                    f"and {wanted.depths[0]} known, found {found} and {item.matched_pages}",  # type: ignore[union-attr]
                    request(item.request),
                )
        if (item.device_pages, item.host_pages) != (wanted.device, host):
            self.fail(
                f"request {item.request}: expected {wanted.device} device and {host} host pages, "
                f"found {item.device_pages} and {item.host_pages}",
                request(item.request),
            )
        if item.depths != wanted.depths:
            self.fail(
                f"request {item.request}: expected {_names(book)} to reach {wanted.depths} pages, "
                f"found {item.depths}",
                request(item.request),
            )


def _too_dear(book: Book, req: RequestMirror) -> bool:
    """Whether a device pool may have lacked room for a load and the first pass after it.

    The room is what is free or unlocked, without the pages that the boundary requires.
    """
    wanted, size = req.expected, book.page_size
    rest = -(-req.length // size) - wanted.best
    for kind in book.kinds:
        least = rest if not kind.at else int(not kind.positional or rest > 0)
        stays = min(wanted.best, kind.need) - wanted.lacking[kind.at]
        room = book.free_before[kind.at] + book.evictable_before[kind.at] - stays
        if wanted.lacking[kind.at] + least > room:
            return True
    return False


def _names(book: Book) -> str:
    return ", ".join(kind.name for kind in book.kinds)


def check() -> MatchReference:
    return MatchReference()
