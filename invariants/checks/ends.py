"""Locks, and what is left after a flush and when everything has ended."""

from __future__ import annotations

from operator import eq

from hicache.core.actions import Prefill, Refused
from hicache.core.events import Flushed
from hicache.core.node import Node
from hicache.core.types import NO_PAGES, PageState
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.pages import FLIGHT, NODE, all_are


class LockBalance(Check):
    name = "LOCK-BAL"
    sentence = (
        "A component of a node has, on each tier, exactly one holder for each running request "
        "whose boundary requires it, for each open flight that pins it and for each pinned prefix, "
        "and at quiescence for the pinned prefixes alone."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        held = (*node.locks[0], *node.locks[1])
        if all(map(eq, map(len, held), mirror.locked)):
            return
        for pages, holders, expected in zip(book.pages, held, mirror.locked, strict=True):
            if len(holders) != expected:
                names = ", ".join(one.name for one in holders.values()) or "nobody"
                self.fail(
                    f"node {node.id}, {pages.where}: expected {expected} holders, found "
                    f"{len(holders)} ({names})",
                    story.node(node.id),
                )

    def audit(self, book: Book, view: CoreView) -> None:
        for slot, book_of in enumerate(book.pages):
            if not book_of.locks.any():
                continue
            for mirror in book.nodes.by_id.values():
                pages = mirror.pages[slot]
                counts = book_of.locks[NO_PAGES if pages is None else pages]
                if len(counts) and not all_are(counts, int(counts[0])):
                    self.fail(
                        f"node {mirror.id}, {book_of.where}: its pages are locked by "
                        f"{counts.min()} to {counts.max()} holders, expected one number",
                        story.node(mirror.id),
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
                        story.node(node.id),
                    )
        for slot, pages in enumerate(book.pages):
            pool, least = pages.pool, len(pinned.get(slot, ()))
            if pool.protected != least:
                self.fail(
                    f"{pages.where}: expected {least} protected pages at quiescence, found "
                    f"{pool.protected}",
                    story.pool(pages),
                )


class Reset(Check):
    name = "RESET"
    sentence = "After a flush the core is like a new one, except for pages that actions still use."
    watches = (Flushed,)

    def see(self, book: Book, item: Flushed, view: CoreView) -> None:
        if any(type(other) is Refused for other in book.outcomes):
            passes = any(type(one.action) is Prefill for one in book.tickets.open.values())
            if not book.requests.admitted and not passes:
                self.fail("a flush was refused although no request is admitted and no pass runs")
            return
        nodes = sum(1 for _ in view.nodes())
        queued = sum(
            len(view.queue_entries(queue, kind.at, garbage))
            for queue in range(3)
            for kind in book.kinds
            for garbage in (False, True)
        )
        writing_back = sum(view.writing_back(kind.at) for kind in book.kinds)
        if nodes or queued or writing_back or len(book.nodes.by_id) != 1:
            self.fail(
                f"expected no nodes, entries or pages being written back, found {nodes}, {queued} "
                f"and {writing_back}"
            )
        waiting = [one.id for one in view.requests.values() if one.prefetch]
        if waiting or view.store_queue or view.distrusted:
            self.fail(
                f"expected nothing to be fetched, stored or distrusted, found requests {waiting}, "
                f"{len(view.store_queue)} nodes and {len(view.distrusted)} pages"
            )
        for pages in book.pages:
            pool = pages.pool
            used = int(((pages.busy > 0) & (pages.owner == 0)).sum())
            fresh = [pages.capacity - used - pages.held[FLIGHT], 0, 0, pages.held[FLIGHT], used]
            if pool.counts != fresh or pool.protected:
                self.fail(
                    f"{pages.where} pool: expected {fresh} pages "
                    f"{[state.name.lower() for state in PageState]} and 0 protected, found "
                    f"{pool.counts} and {pool.protected}",
                    story.pool(pages),
                )


class Quiescence(Check):
    name = "QUIESCENCE"
    sentence = (
        "Once everything is released and all copies have ended, every page is free or cached, and "
        "every cached page that is not pinned can be evicted."
    )
    kind = LIVENESS

    def still(self, book: Book, view: CoreView) -> None:
        pinned = book.wants.pinned()
        for slot, pages in enumerate(book.pages):
            pool, cached = pages.pool, pages.held[NODE]
            most = cached - len(pinned.get(slot, ()))
            if pool.counts[PageState.FREE] + cached != pages.capacity or pool.evictable != most:
                self.fail(
                    f"{pages.where}: free {pool.counts[PageState.FREE]} + cached "
                    f"{cached}, expected {pages.capacity}; evictable {pool.evictable}",
                    story.pool(pages),
                )
        admitted = sum(request.admitted for request in view.requests.values())
        if admitted:
            self.fail(
                f"expected no admitted request, found {admitted}",
                *(story.request(one.id) for one in view.requests.values() if one.admitted),
            )


CHECKS = (LockBalance, Reset, Quiescence)
