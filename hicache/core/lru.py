"""Eviction queues: the leaves of a tier, coldest first, at a cost that does not grow with the tree.

Three queues, each a heap of (rank, node id, node) with at most one entry per node (`node.queued`
bit). Entries are lazy:

    a candidate always has an entry, whose rank is at most its present rank;
    an entry may be stale: its node no candidate any more, or used since. `pop_coldest` drops the
    former and re-files the latter, and each such step is paid for by the use that caused it.

    queue      candidates (all unlocked on that tier, never the root)
    DEVICE     on device, no child on device
    HOST       on host only, no child on host
    DUPLICATE  on both, no child on host: freeing the host copy loses nothing yet, so these go
               only when no host-only leaf is left
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from .node import Node
from .policies.base import EvictionPolicy
from .types import Tier

DEVICE, HOST, DUPLICATE = 0, 1, 2
LEAST_SWEPT = 1024
TIER_OF = (Tier.DEVICE, Tier.HOST, Tier.HOST)


class Queue:
    """One eviction queue. `entries` is a heap, swept of nodes that are no candidates any more when
    it has doubled since the last sweep: what nobody evicts from would keep dead nodes for ever."""

    __slots__ = ("bit", "entries", "index", "sweep_at")

    def __init__(self, index: int) -> None:
        self.index = index
        self.bit = 1 << index
        self.entries: list[tuple[int, int, Node]] = []
        self.sweep_at = LEAST_SWEPT


def is_candidate(node: Node, queue: int) -> bool:
    """Whether the node could be evicted from this queue's tier right now."""
    if node.parent is None:
        return False
    on_device = node.pages[0][0] is not None
    if queue == DEVICE:
        return on_device and node.with_pages[0] == 0 and not any(node.holders[0])
    return (
        node.pages[1][0] is not None
        and on_device == (queue == DUPLICATE)
        and node.with_pages[1] == 0
        and not any(node.holders[1])
    )


def offer(queues: list[Queue], policy: EvictionPolicy, node: Node) -> None:
    """File the node in every queue it has become a candidate of."""
    for queue in queues:
        if not node.queued & queue.bit and is_candidate(node, queue.index):
            node.queued |= queue.bit
            heappush(queue.entries, (policy.rank(node), node.id, node))
            if len(queue.entries) >= queue.sweep_at:
                _sweep(queue)


def _sweep(queue: Queue) -> None:
    live = []
    for entry in queue.entries:
        if is_candidate(entry[2], queue.index):
            live.append(entry)
        else:
            entry[2].queued &= ~queue.bit
    heapify(live)
    queue.entries = live
    queue.sweep_at = max(LEAST_SWEPT, 2 * len(live))


def pop_coldest(queue: Queue, policy: EvictionPolicy) -> Node | None:
    """Take out the candidate with the lowest rank. The caller evicts it or offers it again."""
    entries = queue.entries
    while entries:
        rank, _, node = entries[0]
        if not is_candidate(node, queue.index):
            heappop(entries)
            node.queued &= ~queue.bit
            continue
        now = policy.rank(node)
        heappop(entries)
        if now != rank:
            heappush(entries, (now, node.id, node))
            continue
        node.queued &= ~queue.bit
        return node
    return None
