"""Shared code of HLRU and DLRU, which differ only in the tier."""

from __future__ import annotations

from typing import ClassVar

from hicache.core.radix.node import Node
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.kinds import Kind
from invariants.books.mirror import DEVICE, DUPLICATE, HOST, NodeMirror, serves
from invariants.books.pages import PageBook
from invariants.books.story import node as node_story
from invariants.books.story import pool as pool_story


class AuxQueue(Check):
    """Compares the queue of a component other than the backbone with the copies on its tier."""

    tier: ClassVar[Tier]
    of_several = True

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.parent is None:
            return
        for kind in book.kinds[1:]:
            device, host = mirror.pages[kind.at], mirror.pages[book.width + kind.at]
            here = device if self.tier == Tier.DEVICE else host
            if here is None or mirror.locked[self.tier * book.width + kind.at]:
                continue
            queue = DEVICE
            if self.tier == Tier.HOST:
                queue = HOST if device is None else DUPLICATE
            garbage = not serves(kind, mirror.live_distance)
            part = 2 * (3 * kind.at + queue) + garbage
            if not node.queued >> part & 1:
                both = device is not None and host is not None
                self.fail(
                    f"node {node.id} has {len(here)} unlocked {kind.name} pages on "
                    f"{self.tier.name.lower()}{', and elsewhere' if both else ''}: "
                    f"expected an entry among {'garbage' if garbage else 'what serves'} (part "
                    f"{part}), found parts "
                    f"{[one for one in range(6 * book.width) if node.queued >> one & 1]}",
                    node_story(node.id),
                )

    def audit(self, book: Book, view: CoreView) -> None:
        for kind in book.kinds[1:]:
            self._can_go(book, book.pool(self.tier, kind.at), kind)

    def _can_go(self, book: Book, pool: PageBook, kind: Kind) -> None:
        """The pages of the entries, without stale ones, must equal the pool's count of evictable
        pages.
        """
        queues = (DEVICE,) if self.tier == Tier.DEVICE else (HOST, DUPLICATE)
        nodes = book.nodes.by_id
        pages = 0
        for queue in queues:
            for garbage in (False, True):
                part = 2 * (3 * kind.at + queue) + garbage
                for node_id in book.nodes.queues[part].members:
                    mirror = nodes.get(node_id)
                    if mirror is None or not mirror.candidate >> 3 * kind.at + queue & 1:
                        continue
                    if serves(kind, mirror.live_distance) != garbage:
                        held = mirror.pages[self.tier * book.width + kind.at]
                        pages += 0 if held is None else len(held)
        if pages != pool.evictable:
            self.fail(
                f"{self.tier.name.lower()} {kind.name}: the queues lead to {pages} pages, expected "
                f"the {pool.evictable} evictable ones",
                pool_story(pool),
            )
