"""How copies leave a tier, and the host's own eviction. The device's is in `reclaim`.

    backbone   on host only: the coldest leaf is deleted, page by page from its tail, with whatever
               else it holds; also on device: the node leaves host with all it has there, last those
               that lose nothing
    others     on a leaf that is on host only: the whole leaf; anywhere else: a tombstone stays

Never more than asked, rounded up to a page (a node, for tombstones), but for what can serve nobody
any more: what lies below a node that is deleted, and leaves that lost their last live boundary.

Lives here: one verb per way to leave: demote, tombstone, delete. Must not live here: which copy
goes first (`radix.lru`, the policies).
"""

from __future__ import annotations

from .actions import Evicted
from .errors import CoreBug
from .radix.lru import DUPLICATE, HOST, is_garbage, next_victim, offer
from .radix.node import NONE, Node
from .radix.tree import detach, span, split, truncate, unlink
from .state import State
from .types import BACKBONE, Pages, Tier


def make_host_room(state: State, index: int, count: int) -> bool:
    """Whether `count` host pages are free now, after evicting what was missing."""
    pool = state.pools[Tier.HOST][index]
    count += kept_free(state, index)
    if pool.free < count:
        evict_host(state, index, count - pool.free)
    return pool.free >= count


def kept_free(state: State, index: int) -> int:
    """Host pages that only an exchange may fill, less what loads under way give up."""
    spare = state.config.exchange_pages
    return max(0, spare[index] - state.giving_up[index]) if spare else 0


def give_up_host(state: State, nodes: list[Node]) -> None:
    """A load has landed, and its path's host copies serve nobody: what is on device too leaves
    host, unless somebody else reads it."""
    for node in nodes:
        device, host = node.pages
        for index in reversed(range(len(host))):
            twice = device[index] is not None and host[index] is not None
            if twice and node.parent is not None and not node.locks[Tier.HOST][index]:
                pages = detach(state, node, Tier.HOST, index)
                state.pools[Tier.HOST][index].give_back(pages)
        _refile(state, node)


def evict_host(state: State, index: int, count: int) -> None:
    """Free up to `count` host pages, coldest first; less where the rest is in use."""
    pool = state.pools[Tier.HOST][index]
    goal = pool.free + count
    queues = state.queues[index][HOST : DUPLICATE + 1]
    while pool.free < goal:
        node = next_victim(queues, state.eviction)
        if node is None:
            return
        if node.pages[Tier.HOST][index] is None:
            raise CoreBug(f"{node} is to free host pages of component {index} that it has not")
        short = goal - pool.free
        on_device = node.pages[Tier.DEVICE][BACKBONE] is not None
        if index == BACKBONE:
            pages = min(short, span(node, state.stride))
            if on_device:
                leave_tier(state, cut_tail(state, node, pages), Tier.HOST)
            else:
                delete_tail(state, node, Tier.HOST, pages)
        elif on_device or node.children or any(node.locks[Tier.HOST]):
            tombstone(state, node, Tier.HOST, index)
        else:
            delete_tail(state, node, Tier.HOST, span(node, state.stride))
        delete_dead(state)


def cut_tail(state: State, node: Node, pages: int) -> Node:
    """The node that holds exactly the last `pages` pages; the node itself where that is all."""
    keep = span(node, state.stride) - pages
    if keep < 0 or pages < 1:
        raise CoreBug(f"{node} is to lose {pages} of its {keep + pages} pages")
    if keep:
        split(state, node, keep)
    return node


def demote(state: State, node: Node) -> None:
    """The node leaves the device with all it has there, and stays on host."""
    leave_tier(state, node, Tier.DEVICE)
    _refile(state, node)


def leave_tier(state: State, node: Node, tier: Tier) -> None:
    """Free all copies that the node has on the tier."""
    for index in reversed(range(len(state.components))):
        if node.pages[tier][index] is not None:
            _free_copy(state, node, tier, index)


def tombstone(state: State, node: Node, tier: Tier, index: int) -> None:
    """The component leaves a node that stays: a tombstone. Later ones go with it where they lose
    nothing by it, or serve nobody any more."""
    if index == BACKBONE:
        raise CoreBug(f"{node} is to stay without its backbone on {tier.name.lower()}")
    _free_copy(state, node, tier, index)
    for later in range(index + 1, len(state.components)):
        if node.pages[tier][later] is None or node.locks[tier][later]:
            continue
        spare = node.pages[1 - tier][later] is not None
        if spare or is_garbage(node, state.components[later].window_pages):
            _free_copy(state, node, tier, later)
    _refile(state, node)


def delete_tail(state: State, node: Node, tier: Tier, pages: int) -> None:
    """The last `pages` pages of a node whose backbone is on this tier only leave the tree.

    Host-only nodes below it go with them: without their prefix nothing could ever reach them.
    """
    keep = span(node, state.stride) - pages
    if keep and not node.children and _is_bare(node):
        _give_back(state, tier, BACKBONE, truncate(state, node, tier, keep), node)
        return
    for below in _postorder(cut_tail(state, node, pages)):
        _delete(state, below)


def delete_dead(state: State) -> None:
    """After an eviction: drop the leaves that lost their last live boundary, up to the first node
    that is in use or serves one. Nobody could ever use them again. Boundaries die of nothing else,
    but for states that a path is thinned of, and those leave its end alive."""
    while state.dead:
        node = state.dead.pop()
        if (
            node.parent is not None
            and node.live_distance == NONE
            and not (node.children or node.legs)
            and not any(map(any, node.locks))
        ):
            _delete(state, node)


def _delete(state: State, node: Node) -> None:
    """A childless node leaves the tree with all it has, and so may the one above it, which it may
    alone have kept."""
    above = node.parent
    if above is None:
        raise CoreBug(f"{node} is to be deleted and not in the tree")
    for tier in (Tier.HOST, Tier.DEVICE):
        leave_tier(state, node, tier)
    unlink(state, node)
    state.dead.append(above)


def _is_bare(node: Node) -> bool:
    """Whether it holds nothing but its backbone."""
    return not any(pages is not None for side in node.pages for pages in side[1:])


def _postorder(node: Node) -> list[Node]:
    order = [node]
    for above in order:
        order.extend(above.children.values())
    return order[::-1]


def _refile(state: State, node: Node) -> None:
    """What is left of the node on host may be the only copies now, or all be duplicates."""
    for index, pages in enumerate(node.pages[Tier.HOST]):
        if pages is not None:
            offer(state.queues, state.eviction, node, Tier.HOST, index)


def _free_copy(state: State, node: Node, tier: Tier, index: int) -> None:
    _give_back(state, tier, index, detach(state, node, tier, index), node)


def _give_back(state: State, tier: Tier, index: int, pages: Pages, node: Node) -> None:
    pool = state.pools[tier][index]
    pool.give_back(pages)
    demoted = tier == Tier.DEVICE and node.pages[Tier.HOST][index] is not None
    state.out.append(Evicted(tier, pool.component, pages, node.last_use[index], demoted))
