"""How pages leave a tier, and the host's own eviction. The device's is in `reclaim`.

    host only          the coldest leaf is dropped, page by page from its tail
    also on device     the copy is forgotten; only when no host-only leaf is left

Never more than asked, rounded up to a page, but for the host pages below a node that is dropped.
"""

from __future__ import annotations

from .actions import Evicted
from .lru import DUPLICATE, HOST, pop_coldest
from .node import Node
from .state import State
from .tree import BACKBONE, detach, remove, span, split, truncate
from .types import Pages, Tier


def make_host_room(state: State, count: int) -> bool:
    """Whether `count` host pages are free now, after evicting what was missing."""
    pool = state.pools[Tier.HOST][BACKBONE]
    evict_host(state, count - pool.free)
    return pool.free >= count


def evict_host(state: State, count: int) -> None:
    """Free up to `count` host pages, coldest first; less where the rest is in use."""
    pool = state.pools[Tier.HOST][BACKBONE]
    goal = pool.free + count
    while pool.free < goal:
        node = pop_coldest(state.queues[HOST], state.eviction)
        if node is not None:
            drop(state, node, Tier.HOST, min(goal - pool.free, span(node, state.stride)))
            continue
        node = pop_coldest(state.queues[DUPLICATE], state.eviction)
        if node is None:
            return
        node = tail(state, node, min(goal - pool.free, span(node, state.stride)))
        vacate(state, node, Tier.HOST, demoted=False)


def tail(state: State, node: Node, pages: int) -> Node:
    """The node that holds exactly the last `pages` pages; the node itself where that is all."""
    keep = span(node, state.stride) - pages
    if keep:
        split(state, node, keep)
    return node


def vacate(state: State, node: Node, tier: Tier, demoted: bool) -> None:
    """The node leaves the tier and stays on the other."""
    _give_back(state, tier, detach(state, node, tier, BACKBONE), node, demoted)


def drop(state: State, node: Node, tier: Tier, pages: int) -> None:
    """The last `pages` pages of a node that is on this tier only leave the tree.

    Host-only nodes below it go with them: without their prefix nothing could ever reach them.
    """
    keep = span(node, state.stride) - pages
    if keep and not node.children:
        _give_back(state, tier, truncate(state, node, tier, keep), node, demoted=False)
        return
    for below in _postorder(tail(state, node, pages)):
        side = Tier.HOST if below.pages[tier][BACKBONE] is None else tier
        _give_back(state, side, detach(state, below, side, BACKBONE), below, demoted=False)
        remove(state, below)


def _postorder(node: Node) -> list[Node]:
    order = [node]
    for above in order:
        order.extend(above.children.values())
    return order[::-1]


def _give_back(state: State, tier: Tier, pages: Pages, node: Node, demoted: bool) -> None:
    pool = state.pools[tier][BACKBONE]
    pool.give_back(pages)
    state.out.append(Evicted(tier, pool.component, pages, node.last_use, demoted))
