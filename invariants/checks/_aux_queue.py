"""What HLRU and DLRU share: they differ in the tier only."""

from __future__ import annotations

from typing import ClassVar

from hicache.core.node import Node
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.kinds import Kind
from invariants.shadow import DEVICE, DUPLICATE, HOST, SERVES, Shadow
from invariants.story import node as node_story


class AuxQueue(Check):
    """The queue of a component other than the backbone, against the copies on its tier."""

    tier: ClassVar[Tier]
    of_several = True

    def node(self, book: Book, shadow: Shadow, node: Node) -> None:
        for kind in book.kinds[1:]:
            here, other = (node.pages[tier][kind.at] for tier in (self.tier, 1 - self.tier))
            if here is None or node.holders[self.tier][kind.at] or node.parent is None:
                continue
            queue = DEVICE
            if self.tier == Tier.HOST:
                queue = HOST if other is None else DUPLICATE
            garbage = node.near >= kind.need
            part = 2 * (3 * kind.at + queue) + garbage
            if not node.queued >> part & 1:
                self.fail(
                    f"node {node.id} has {len(here)} unlocked {kind.name} pages on "
                    f"{self.tier.name.lower()}{'' if other is None else ', and elsewhere'}: "
                    f"expected an entry among {'garbage' if garbage else 'what serves'} (part "
                    f"{part}), found parts "
                    f"{[one for one in range(6 * book.width) if node.queued >> one & 1]}",
                    node_story(node.id),
                )

    def audit(self, book: Book, view: CoreView) -> None:
        for kind in book.kinds[1:]:
            self._can_go(book, view, kind)

    def _can_go(self, book: Book, view: CoreView, kind: Kind) -> None:
        """What the entries can give, stale ones left out, is what the pool counts as evictable."""
        queues = (DEVICE,) if self.tier == Tier.DEVICE else (HOST, DUPLICATE)
        nodes = book.nodes.by_id
        pages = 0
        for queue in queues:
            for garbage in (False, True):
                for _, _, node_id in view.queue_entries(queue, kind.at, garbage):
                    shadow = nodes.get(node_id)
                    if shadow is None or not shadow.candidate >> 3 * kind.at + queue & 1:
                        continue
                    if (shadow.rank[kind.at] < SERVES) == garbage:
                        held = shadow.pages[self.tier * book.width + kind.at]
                        pages += 0 if held is None else len(held)
        evictable = view.pool(self.tier, kind.at).evictable
        if pages != evictable:
            self.fail(
                f"{self.tier.name.lower()} {kind.name}: the queues lead to {pages} pages, expected "
                f"the {evictable} evictable ones"
            )
