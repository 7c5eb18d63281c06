"""Locks by receipt: what was locked is written down, and a release replays exactly that.

A lock count is the number of receipts on (node, tier, component). Locks are taken on pages that are
there, upward-closed along a path, so the unlocked cached pages of a pool are exactly those that
eviction can reach.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import CoreBug
from .lru import offer
from .node import Node, Receipt
from .state import State
from .types import Tier


def open_receipt(state: State, holder: str) -> Receipt:
    receipt = Receipt(state.next_receipt, holder)
    state.next_receipt += 1
    return receipt


def lock(state: State, receipt: Receipt, nodes: Iterable[Node], tier: int) -> None:
    """Lock every component that each node holds on the tier, once per receipt."""
    for node in nodes:
        for index, pages in enumerate(node.pages[tier]):
            holders = node.holders[tier][index]
            if pages is None or receipt.id in holders:
                continue
            if not holders:
                state.pools[tier][index].protected += len(pages)
            holders[receipt.id] = receipt
            receipt.locked.append((node, tier, index))
            state.touched[node.id] = node


def release(state: State, receipt: Receipt) -> None:
    """Undo exactly what the receipt says. A second release is a defect."""
    for node, tier, index in receipt.locked:
        holders, pages = node.holders[tier][index], node.pages[tier][index]
        if pages is None or holders.pop(receipt.id, None) is None:
            raise CoreBug(f"{receipt.holder} releases a lock on {node} that it does not hold")
        state.touched[node.id] = node
        if not holders:
            state.pools[tier][index].protected -= len(pages)
            if not node.with_pages[Tier.DEVICE] or not node.with_pages[Tier.HOST]:
                offer(state.queues, state.eviction, node)
    receipt.locked.clear()
