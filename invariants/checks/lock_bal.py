"""Lock counts equal the number of holders in the books."""

from __future__ import annotations

from hicache.core.radix.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.pages import all_are
from invariants.books.story import node as node_story
from invariants.books.story import pool as pool_story


class LockBalance(Check):
    name = "LOCK-BAL"
    sentence = (
        "A component of a node has, on each tier, exactly one holder for each running request "
        "whose boundary requires it, for each open flight that pins it and for each pinned prefix, "
        "and at quiescence for the pinned prefixes alone."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        on_device, on_host = node.locks
        held = (*on_device, *on_host)
        if [len(holders) for holders in held] == mirror.locked:
            return
        for pages, holders, expected in zip(book.pages, held, mirror.locked, strict=True):
            if len(holders) != expected:
                names = ", ".join(one.name for one in holders.values()) or "nobody"
                self.fail(
                    f"node {node.id}, {pages.where}: expected {expected} holders, found "
                    f"{len(holders)} ({names})",
                    node_story(node.id),
                )

    def audit(self, book: Book, view: CoreView) -> None:
        for mirror in book.nodes.by_id.values():
            for slot, pages in enumerate(mirror.pages):
                if pages is None:
                    continue
                counts = book.pages[slot].locks[pages]
                if len(counts) and not all_are(counts, int(counts[0])):
                    self.fail(
                        f"node {mirror.id}, {book.pages[slot].where}: its pages are locked by "
                        f"{counts.min()} to {counts.max()} holders, expected one number",
                        node_story(mirror.id),
                    )

    def still(self, book: Book, view: CoreView) -> None:
        pinned = book.wants.pinned()
        for node in view.nodes():
            for slot, pages in enumerate(book.pages):
                holders = node.locks[pages.tier][pages.component]
                held = node.pages[pages.tier][pages.component]
                wanted = held is not None and int(held[0]) in pinned.get(slot, ())
                if holders and not wanted:
                    names = ", ".join(one.name for one in holders.values())
                    self.fail(
                        f"node {node.id}, {pages.where}: expected 0 holders at quiescence, "
                        f"found {len(holders)} ({names})",
                        node_story(node.id),
                    )
        for slot, pages in enumerate(book.pages):
            pool, least = view.pool(pages.tier, pages.component), len(pinned.get(slot, ()))
            if pool.protected != least:
                self.fail(
                    f"{pages.where}: expected {least} protected pages at quiescence, found "
                    f"{pool.protected}",
                    pool_story(pages),
                )


def check() -> LockBalance:
    return LockBalance()
