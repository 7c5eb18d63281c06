"""Eviction queues: what a pool could lose, coldest first, at a cost that does not grow with the
tree.

Three queues per component, each of two heaps with at most one entry per node and heap (`queued`
bits): copies that serve a live boundary, and *garbage*, which serves none and goes first. Entries
are lazy:

    a candidate always has an entry in the heap it belongs to, of at most its present rank
    (a policy's ranks only grow, so what has the lowest entry is found first);
    an entry may be stale: its node no candidate any more, used since, or moved to the other heap.
    `next_victim` drops or re-files those, and each such step is paid for by what caused it.

    queue      of the backbone, unlocked on that tier     of any other, unlocked on that tier
    DEVICE     no child on device, no component locked    on device
    HOST       no child on host, no component locked,     on host only
               and something is on host only
    DUPLICATE  the same, but all of it is on device too   on both: freeing the host copy loses
                                                          nothing yet, so these go last
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from ..eviction_policies.base import EvictionPolicy
from ..types import BACKBONE
from .node import Node

DEVICE, HOST, DUPLICATE = 0, 1, 2
KINDS = 3
LEAST_SWEPT = 1024
Entry = tuple[int, int, int, Node]


class Queue:
    """One eviction queue of one component. The heaps hold (rank, -end, node id, node) and are swept
    of nodes that are no candidates any more when they have doubled since the last sweep: what
    nobody evicts from would keep dead nodes for ever."""

    __slots__ = ("bits", "component", "heaps", "kind", "sweep_at", "tier", "window_pages")

    def __init__(self, component: int, kind: int, window_pages: int) -> None:
        self.component = component
        self.kind = kind
        self.tier = int(kind != DEVICE)
        self.window_pages = window_pages
        first = 2 * (KINDS * component + kind)
        self.bits = (1 << first, 2 << first)
        self.heaps: list[list[Entry]] = [[], []]
        self.sweep_at = [LEAST_SWEPT, LEAST_SWEPT]


def is_garbage(node: Node, window_pages: int) -> bool:
    """Whether a copy that boundaries require within `window_pages` serves none that lives."""
    return node.live_distance >= window_pages


def kind_now(node: Node, tier: int, component: int) -> int:
    """The kind of queue that the node's copy belongs in right now, -1 where it cannot be lost."""
    device, host = node.pages
    locks = node.locks[tier]
    if node.parent is None or node.pages[tier][component] is None or locks[component]:
        return -1
    if component != BACKBONE:
        return DEVICE if tier == 0 else HOST if device[component] is None else DUPLICATE
    if node.with_pages[tier] or any(locks):
        return -1
    if tier == 0:
        return DEVICE
    for one, two in zip(device, host, strict=True):
        if one is None and two is not None:
            return HOST
    return DUPLICATE


def is_candidate(node: Node, queue: Queue) -> bool:
    """Whether the node could lose this component's copy on the queue's tier right now."""
    return kind_now(node, queue.tier, queue.component) == queue.kind


def offer(
    queues: list[list[Queue]], policy: EvictionPolicy, node: Node, tier: int, component: int
) -> None:
    """File the node's copy of a component where it has become a candidate, if it has."""
    if node.pages[tier][component] is None or node.locks[tier][component]:
        return
    kind = kind_now(node, tier, component)
    if kind < 0:
        return
    queue = queues[component][kind]
    garbage = node.live_distance >= queue.window_pages
    bit = queue.bits[garbage]
    if node.queued & bit:
        return
    node.queued |= bit
    heap = queue.heaps[garbage]
    heappush(heap, (policy.rank(node, component), -node.end_page, node.id, node))
    if len(heap) >= queue.sweep_at[garbage]:
        _sweep(queue, garbage)


def _sweep(queue: Queue, garbage: bool) -> None:
    live = []
    for entry in queue.heaps[garbage]:
        node = entry[3]
        if is_garbage(node, queue.window_pages) == garbage and is_candidate(node, queue):
            live.append(entry)
        else:
            node.queued &= ~queue.bits[garbage]
    heapify(live)
    queue.heaps[garbage] = live
    queue.sweep_at[garbage] = max(LEAST_SWEPT, 2 * len(live))


def next_victim(queues: list[Queue], policy: EvictionPolicy) -> Node | None:
    """Take out the candidate to go next: garbage of any of these queues, then the first queue that
    has one. The caller evicts it or offers it again."""
    for garbage in (True, False):
        for queue in queues:
            node = _pop(queue, policy, garbage)
            if node is not None:
                return node
    return None


def _pop(queue: Queue, policy: EvictionPolicy, garbage: bool) -> Node | None:
    heap, bit = queue.heaps[garbage], queue.bits[garbage]
    while heap:
        entry = heap[0]
        node = entry[3]
        heappop(heap)
        if is_garbage(node, queue.window_pages) != garbage or not is_candidate(node, queue):
            node.queued &= ~bit
            continue
        now = (policy.rank(node, queue.component), -node.end_page, node.id, node)
        if now[:2] != entry[:2]:
            heappush(heap, now)
            continue
        node.queued &= ~bit
        return node
    return None
