"""Different prefixes have different digests."""

from __future__ import annotations

from collections.abc import Iterator

from hicache.core.actions import Fetch, Lookup, Store
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import flight

from ._storage import parts_of


class KeyInjective(Check):
    name = "KEY-INJ"
    sentence = (
        "No digest stands for two prefixes or namespaces, and no prefix has two digests, over all "
        "that is looked up, fetched and stored."
    )
    watches = (Lookup, Fetch, Store)

    def __init__(self) -> None:
        self._tags: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}

    def see(self, book: Book, item: Lookup | Fetch | Store, view: CoreView) -> None:
        for tag, digest in _named(book, item):
            known = self._tags.setdefault(digest, tag), self._digests.setdefault(tag, digest)
            if known != (tag, digest):
                what = "stands for another prefix" if known[0] != tag else "is its second one"
                self.fail(
                    f"flight {item.flight}: the digest {digest.hex()[:16]} of a prefix {what}; "
                    f"expected the tag {known[0]:016x}, found {tag:016x}",
                    flight(item.flight),
                )


def _named(book: Book, item: Lookup | Fetch | Store) -> Iterator[tuple[int, bytes]]:
    """The tag of each prefix that an action names, and its digest."""
    if type(item) is Store:
        for part in parts_of(book, book.tickets.open[item.flight]):
            yield from zip(part.tags, part.digests, strict=False)
        return
    prefetch = book.storage.prefetches.get(item.flight)
    known = [] if prefetch is None else prefetch.prompt.tolist()
    if type(item) is Lookup:
        yield from zip(known[item.first_page :], item.digests, strict=False)
        return
    for piece in item.pieces:  # type: ignore[union-attr]
        yield from zip(known[piece.first_page :], piece.digests, strict=False)


def check() -> KeyInjective:
    return KeyInjective()
