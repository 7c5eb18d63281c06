"""Eviction queues: the copies that a pool can evict, coldest first. The cost of finding a victim
does not grow with the tree.

Each component has three queues. Each queue has two heaps: one for copies that a live boundary
requires, and one for *unreachable* copies, which none requires and which are evicted first. A node
has at most one entry in each heap (`queued` bits). Entries are lazy:

    A candidate always has an entry in the heap it belongs to, with a rank not above its present
    rank. (The ranks of a policy only grow, so the lowest entry finds the coldest candidate.)
    An entry may be stale: its node is no candidate any more, was used since, or belongs to the
    other heap. `next_victim` drops or re-files such entries. Each of these steps is paid for by
    the change that made the entry stale.

    queue           backbone, a candidate if             other component, unlocked and
    DEVICE          no child on device, nothing locked   on device
    HOST            no child on host, nothing locked,    on host only
                    some component on host only
    ALSO_ON_DEVICE  no child on host, nothing locked,    on both tiers: nothing is lost when the
                    all of it is on device too           host copy is freed, so these go last
"""

from heapq import heapify, heappop, heappush
from typing import Final

from .eviction_policies import EvictionPolicy
from .node import Node
from .types import BACKBONE, DEVICE, HOST

ALSO_ON_DEVICE: Final = 2  # of host copies; the other kinds of queue are numbered like their tiers
KINDS: Final = 3
LEAST_SWEPT = 1024
Entry = tuple[int, int, int, Node]


class Queue:
    """One eviction queue of one component. The entries of its heaps are (rank, -end page, node id,
    node). A heap is swept of stale entries when it has doubled since the last sweep. Otherwise a
    queue from which nothing is evicted would keep deleted nodes in memory."""

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


def is_unreachable(node: Node, window_pages: int) -> bool:
    """Whether no live boundary requires the node's copy of a component with this window."""
    return node.live_distance >= window_pages


def kind_now(node: Node, tier: int, component: int) -> int:
    """The kind of queue in which the node's copy belongs now; -1 if it cannot be evicted."""
    locks = node.locks[tier]
    if locks[component] or node.pages[tier][component] is None or node.parent is None:
        return -1
    if component == BACKBONE and (node.with_pages[tier] or (len(locks) > 1 and any(locks))):
        return -1
    if tier == DEVICE:
        return DEVICE
    device, host = node.pages
    if component != BACKBONE:
        return HOST if device[component] is None else ALSO_ON_DEVICE
    for index, pages in enumerate(host):
        if pages is not None and device[index] is None:
            return HOST
    return ALSO_ON_DEVICE


def offer(
    queues: list[list[Queue]], policy: EvictionPolicy, node: Node, tier: int, component: int
) -> None:
    """If the node's copy of a component can be evicted now, put it into its queue."""
    kind = kind_now(node, tier, component)
    if kind < 0:
        return
    queue = queues[component][kind]
    unreachable = node.live_distance >= queue.window_pages
    bit = queue.bits[unreachable]
    if node.queued & bit:
        return
    node.queued |= bit
    heap = queue.heaps[unreachable]
    heappush(heap, (policy.rank(node, component), -node.end_page, node.id, node))
    if len(heap) >= queue.sweep_at[unreachable]:
        _sweep(queue, unreachable)


def _sweep(queue: Queue, unreachable: bool) -> None:
    live = []
    for entry in queue.heaps[unreachable]:
        node = entry[3]
        fits = (node.live_distance >= queue.window_pages) == unreachable
        if fits and kind_now(node, queue.tier, queue.component) == queue.kind:
            live.append(entry)
        else:
            node.queued &= ~queue.bits[unreachable]
    heapify(live)
    queue.heaps[unreachable] = live
    queue.sweep_at[unreachable] = max(LEAST_SWEPT, 2 * len(live))


def next_victim(queues: list[Queue], policy: EvictionPolicy) -> Node | None:
    """Take the next victim out of these queues: first an unreachable copy of any of them, then
    the coldest of the first queue that has a candidate. The caller must evict it or offer it again.
    None if there is no candidate."""
    for unreachable in (True, False):
        for queue in queues:
            heap = queue.heaps[unreachable]
            while heap:
                rank, end, _, node = heappop(heap)
                component = queue.component
                candidate = (node.live_distance >= queue.window_pages) == unreachable and kind_now(
                    node, queue.tier, component
                ) == queue.kind
                if candidate:
                    now = policy.rank(node, component)
                    if now != rank or -node.end_page != end:
                        heappush(heap, (now, -node.end_page, node.id, node))
                        continue
                node.queued &= ~queue.bits[unreachable]
                if candidate:
                    return node
    return None
