"""Removing copies from a tier, and eviction from host. For eviction from the device see `reclaim`.

What an eviction from host does:

    backbone   on host only: pages are deleted from the end of the coldest leaf, with its other
               components; also on device: all host copies of the node are freed
    others     on a leaf that is on host only: pages are deleted from its end, too, but for a state
               the whole leaf; elsewhere: a tombstone

Host copies of nodes that are also on device are evicted last, because nothing is lost with them. No
more is freed than was asked for, rounded up to a page (for tombstones, to a node), except for nodes
that no request could use any more: those below a deleted node, and leaves that lost their last
live boundary.

There is one function for each way to remove a copy: demote, tombstone, delete. Does not choose the
victim; see `radix/lru` and the eviction policies.
"""

from __future__ import annotations

from .actions import Evicted
from .errors import CoreBug
from .radix.locks import unlock_deleted
from .radix.lru import DUPLICATE, is_garbage, next_victim, offer
from .radix.marks import left, note_eviction
from .radix.node import NONE, Node, is_locked
from .radix.tree import copies, detach, digests_of, digests_of_copy, span, split, truncate, unlink
from .state import State
from .types import BACKBONE, DEVICE, HOST, TIERS, Pages


def make_host_room(state: State, index: int, count: int) -> bool:
    """Evict until `count` host pages are free, besides those kept for exchanges. Returns whether
    they are."""
    pool = state.pools[HOST][index]
    count += kept_free(state, index)
    if pool.free < count:
        evict_host(state, index, count - pool.free)
    return pool.free >= count


def kept_free(state: State, index: int) -> int:
    """Host pages that must stay free for exchanges, less those that loads in flight will free."""
    spare = state.config.exchange_pages
    return max(0, spare[index] - state.giving_up[index]) if spare else 0


def give_up_host(state: State, nodes: list[Node]) -> None:
    """A load has landed: free the host copies of its path that are also on device and that nobody
    has locked."""
    for node in nodes:
        device, host = node.pages
        for index in reversed(range(len(host))):
            twice = device[index] is not None and host[index] is not None
            if twice and node.parent is not None and not node.locks[HOST][index]:
                pages = detach(state, node, HOST, index)
                state.pools[HOST][index].give_back(pages)
        _refile(state, node)


def evict_host(state: State, index: int, count: int) -> None:
    """Free `count` host pages, coldest first; fewer if the rest is in use."""
    pool = state.pools[HOST][index]
    goal = pool.free + count
    queues = state.queues[index][HOST : DUPLICATE + 1]
    while pool.free < goal:
        node = next_victim(queues, state.eviction)
        if node is None:
            return
        if node.pages[HOST][index] is None:
            raise CoreBug(f"{node} is to free host pages of component {index} that it has not")
        short = goal - pool.free
        on_device = node.pages[DEVICE][BACKBONE] is not None
        pages = span(node, state.stride)
        if state.components[index].positional:
            pages = min(short, pages)
        if index != BACKBONE and (on_device or node.children or any(node.locks[HOST])):
            tombstone(state, node, HOST, index)
        elif on_device:
            leave_tier(state, cut_tail(state, node, pages), HOST)
        else:
            delete_tail(state, node, HOST, pages)
        delete_dead(state)


def cut_tail(state: State, node: Node, pages: int) -> Node:
    """Split off the last `pages` pages of a node and return them as a node. Returns the node itself
    if it has no more pages."""
    keep = span(node, state.stride) - pages
    if keep < 0 or pages < 1:
        raise CoreBug(f"{node} is to lose {pages} of its {keep + pages} pages")
    if keep:
        split(state, node, keep)
    return node


def demote(state: State, node: Node) -> None:
    """Free all device copies of the node; it stays on host."""
    leave_tier(state, node, DEVICE)
    _refile(state, node)


def leave_tier(state: State, node: Node, tier: int) -> None:
    """Free all copies that the node has on the tier."""
    for index in reversed(range(len(state.components))):
        if node.pages[tier][index] is not None:
            _free_copy(state, node, tier, index)


def tombstone(state: State, node: Node, tier: int, index: int) -> None:
    """Free one component of a node that stays in the tree. Later components are freed too if they
    are unlocked and are either on the other tier as well or garbage."""
    if index == BACKBONE:
        raise CoreBug(f"{node} is to stay without its backbone on {TIERS[tier].name.lower()}")
    _free_copy(state, node, tier, index)
    for later in range(index + 1, len(state.components)):
        if node.pages[tier][later] is None or node.locks[tier][later]:
            continue
        spare = node.pages[1 - tier][later] is not None
        if spare or is_garbage(node, state.components[later].window_pages):
            _free_copy(state, node, tier, later)
    _refile(state, node)


def delete_tail(state: State, node: Node, tier: int, pages: int) -> None:
    """Delete the last `pages` pages of a node whose backbone is on this tier only.

    Host-only nodes below it are deleted too, because they cannot be matched without their prefix.
    """
    keep = span(node, state.stride) - pages
    if keep and not node.children and copies(node) == 1:
        if state.chances and tier == DEVICE:
            left(state, node, BACKBONE, digests_of(state, node)[keep:])
        _give_back(state, tier, BACKBONE, truncate(state, node, tier, keep), node)
        return
    for below in _postorder(cut_tail(state, node, pages)):
        delete(state, below)


def delete_dead(state: State) -> None:
    """After an eviction, delete the leaves that lost their last live boundary, and then their
    parents up to the first node that is in use or has a live boundary. No request could use them.
    Only evictions make a leaf lose its boundary: `limit_states` keeps the one at the end."""
    while state.dead:
        node = state.dead.pop()
        if (
            node.parent is not None
            and node.live_distance == NONE
            and not (node.children or node.legs)
            and not is_locked(node)
        ):
            delete(state, node)


def delete(state: State, node: Node) -> None:
    """Delete a node without children, with all its copies. Its parent may now be dead, too."""
    above = node.parent
    if above is None:
        raise CoreBug(f"{node} is to be deleted and not in the tree")
    if state.storage_flights:
        unlock_deleted(state, node)
    for tier in (HOST, DEVICE):
        leave_tier(state, node, tier)
    unlink(state, node)
    state.dead.append(above)


def _postorder(node: Node) -> list[Node]:
    order = [node]
    for above in order:
        order.extend(above.children.values())
    return order[::-1]


def _refile(state: State, node: Node) -> None:
    """File the node's host copies again: they may have become the only copies or duplicates."""
    for index, pages in enumerate(node.pages[HOST]):
        if pages is not None:
            offer(state.queues, state.eviction, node, HOST, index)


def _free_copy(state: State, node: Node, tier: int, index: int) -> None:
    if state.chances and tier == DEVICE:
        left(state, node, index, digests_of_copy(state, node, index))
    _give_back(state, tier, index, detach(state, node, tier, index), node)


def _give_back(state: State, tier: int, index: int, pages: Pages, node: Node) -> None:
    pool = state.pools[tier][index]
    pool.give_back(pages)
    if state.marked and tier == DEVICE:
        note_eviction(state, node, index)
    demoted = tier == DEVICE and node.pages[HOST][index] is not None
    state.out.append(Evicted(pool.tier, pool.component, pages, node.last_use[index], demoted))
