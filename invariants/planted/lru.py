"""Bugs in `lru`: the eviction queues, and the choice of a victim."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru
from hicache.core.radix.lru import SecondChances
from hicache.core.types import HOST

from .base import bug

_kind_now = lru.kind_now
_next_victim = lru.next_victim
_offer = lru.offer


@bug(SecondChances, "remember", kills="spec", components=("full",), eviction="s3_fifo")
def ghost_forgets_nothing(chances: Any) -> None:
    """The ghost remembers every page that was ever evicted out of the small queue."""
    chances.ghost |= dict.fromkeys(chances.buried)
    chances.buried.clear()


@bug(lru, "kind_now", rows=("B8",), kills="hlru")
def host_lock_checks_backbone_only(node: Any, tier: int, component: int) -> int:
    """A host copy counts as unlocked although another component of its node is locked."""
    if tier == 1 and component and node.pages[1][component] is not None:
        free = node.parent is not None and not node.locks[1][0]
        here = HOST if node.pages[0][component] is None else lru.DUPLICATE
        return here if free else -1
    return _kind_now(node, tier, component)


@bug(lru, "kind_now", rows=("F3",), kills="spec")
def host_node_with_children_is_dropped(node: Any, tier: int, component: int) -> int:
    """A node that has children on host is dropped as if it were a leaf."""
    kept = node.with_pages
    node.with_pages = (node.with_pages[0], 0)
    try:
        return _kind_now(node, tier, component)
    finally:
        node.with_pages = kept


@bug(lru, "kind_now", rows=("B8",), kills="hlru")
def one_host_lock_count_for_all_components(node: Any, tier: int, component: int) -> int:
    """No host copy of a node can be evicted while any component of it is locked there."""
    return -1 if tier == 1 and any(node.locks[1]) else _kind_now(node, tier, component)


@bug(lru, "offer", kills="hlru")
def host_windows_are_not_queued(
    queues: list[Any], policy: Any, node: Any, tier: int, index: int
) -> None:
    """A window or state that arrives on host is in no eviction queue there."""
    if not index or not tier:
        _offer(queues, policy, node, tier, index)


@bug(lru, "offer", kills="dlru")
def unlocked_windows_are_not_queued(
    queues: list[Any], policy: Any, node: Any, tier: int, index: int
) -> None:
    """A window or state whose last lock ends is in no eviction queue."""
    if not index or tier:
        _offer(queues, policy, node, tier, index)


@bug(lru, "_sweep", kills="rss-bound")
def stale_queue_entries_are_never_swept(queue: Any, garbage: bool) -> None:
    """Stale entries stay in the eviction queues and keep deleted nodes in memory."""
    queue.sweep_at[garbage] *= 2


@bug(lru, "next_victim", kills="spec")
def garbage_is_not_evicted_first(queues: list[Any], policy: Any) -> Any:
    """A copy that serves a live boundary is evicted before one that serves none."""
    for garbage in (False, True):
        for queue in queues:
            node = lru._pop(queue, policy, garbage, int(garbage))
            if node is not None:
                return node
    return None


@bug(lru, "next_victim", rows=("G5",), kills="spec")
def host_duplicates_are_never_reclaimed(queues: list[Any], policy: Any) -> Any:
    """Host copies of pages on device count as room, and are never reclaimed for it."""
    return _next_victim([one for one in queues if one.kind != lru.DUPLICATE], policy)


@bug(lru, "next_victim", kills="spec")
def only_copies_evicted_before_duplicates(queues: list[Any], policy: Any) -> Any:
    """Host evicts only copies before duplicates."""
    return _next_victim(queues[::-1], policy)
