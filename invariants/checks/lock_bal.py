"""Lock counts against a ledger of owners."""

from __future__ import annotations

from hicache.core.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.shadow import Shadow
from invariants.story import node as node_story


class LockBalance(Check):
    name = "LOCK-BAL"
    sentence = (
        "A node has, on each tier, exactly one holder per seated request that shares it and per "
        "open flight that pins it; none at quiescence."
    )

    def node(self, book: Book, shadow: Shadow, node: Node) -> None:
        holders, locked = node.holders, shadow.locked
        if len(holders[0][0]) != locked[0] or len(holders[1][0]) != locked[1]:
            tier = 0 if len(holders[0][0]) != locked[0] else 1
            names = ", ".join(receipt.holder for receipt in holders[tier][0].values()) or "nobody"
            self.fail(
                f"node {node.id}, {'device' if tier == 0 else 'host'}: expected {locked[tier]} "
                f"holders, found {len(holders[tier][0])} ({names})",
                node_story(node.id),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        for shadow in book.nodes.by_id.values():
            for tier, pages in enumerate(shadow.pages):
                if pages is None:
                    continue
                counts = book.pages[tier].locks[pages]
                if len(counts) and (counts != counts[0]).any():
                    self.fail(
                        f"node {shadow.id}, tier {tier}: its pages are locked by "
                        f"{int(counts.min())} to {int(counts.max())} holders, expected one number",
                        node_story(shadow.id),
                    )

    def still(self, book: Book, view: CoreView) -> None:
        for node in view.nodes():
            for tier in (0, 1):
                if node.holders[tier][0]:
                    names = ", ".join(one.holder for one in node.holders[tier][0].values())
                    self.fail(
                        f"node {node.id}, tier {tier}: expected 0 holders at quiescence, "
                        f"found {len(node.holders[tier][0])} ({names})",
                        node_story(node.id),
                    )
        for pages in book.pages:
            if view.pool(pages.tier).protected:
                self.fail(
                    f"{pages.tier.name.lower()}: expected 0 protected pages at quiescence, "
                    f"found {view.pool(pages.tier).protected}"
                )


def check() -> LockBalance:
    return LockBalance()
