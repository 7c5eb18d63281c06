"""Bugs in `reclaim`: how much is evicted from device, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush
from typing import Any

from hicache.core import eviction, reclaim
from hicache.core.radix import lru
from hicache.core.radix.tree import span
from hicache.core.types import PageState, Tier

from .base import Patch, bug

_demote = eviction.demote
_next_victim = lru.next_victim
_evict_leaf = reclaim._evict_leaf
_to_write_back = reclaim._to_write_back
_evict_device = reclaim.evict_device
_make_device_room = reclaim.make_device_room


def _second_victim(queues: list[Any], policy: Any) -> Any:
    """The second victim of these queues; the first stays. The first if there is no other."""
    first: Any = _next_victim(queues, policy)
    second = _next_victim(queues, policy) if first is not None else None
    if second is None:
        return first
    for queue in queues:
        if lru.is_candidate(first, queue):
            garbage = lru.is_garbage(first, queue.window_pages)
            first.queued |= queue.bits[garbage]
            rank = policy.rank(first, queue.component)
            heappush(queue.heaps[garbage], (rank, -first.end_page, first.id, first))
    return second


@bug(reclaim, "make_device_room", rows=("J3",), kills="spec")
def eviction_asks_for_the_whole_request(state: Any, index: int, count: int) -> bool:
    """An eviction asks for all pages that a request needs, not for the missing ones."""
    pool = state.pools[Tier.DEVICE][index]
    if pool.free < count:
        reclaim.evict_device(state, index, count)
    return bool(pool.free >= count)


@bug(reclaim, "make_device_room", rows=("J3",), kills="spec")
def evictions_free_two_pages_more(state: Any, index: int, count: int) -> bool:
    """An eviction for a request frees two pages more than are missing."""
    pool = state.pools[Tier.DEVICE][index]
    if pool.free < count:
        reclaim.evict_device(state, index, count - pool.free + 2)
    return bool(pool.free >= count)


@bug(reclaim, "make_device_room", rows=("F9",))
def writing_back_counts_as_free(state: Any, index: int, count: int) -> bool:
    """Pages that a write_back eviction still copies count as free at once."""
    done = _make_device_room(state, index, count)
    return done or bool(state.pools[0][index].free + state.writing_back[index] >= count)


@bug(reclaim, "evict_device", kills="spec")
def any_copy_under_way_holds_evictions_back(state: Any, index: int, count: int) -> None:
    """While a use is copied to host, no page of full attention is evicted."""
    if index or not state.backups or not state.writes.threshold:
        _evict_device(state, index, count)


@bug(reclaim, "evict_device", kills="spec", components=("full", "swa"))
def each_tombstone_costs_another(state: Any, index: int, count: int) -> None:
    """An eviction of windows frees one page too many."""
    _evict_device(state, index, count + (1 if index else 0))


@bug(reclaim, "evict_device", rows=("J9",), kills="work-bound")
def eviction_visits_the_whole_tree(state: Any, index: int, count: int) -> None:
    """An eviction of a single page looks at every node."""
    stack = list(state.root.children.values())
    for node in stack:
        state.touched[node.id] = node
        stack.extend(node.children.values())
    _evict_device(state, index, count)


@bug(reclaim, "evict_device", kills="spec")
def evictions_end_after_one_write_back(state: Any, index: int, count: int) -> None:
    """After one write-back an eviction does not go on."""
    pool, begun = state.pools[0][index], state.writing_back[index]
    goal, before = pool.free + count, -1
    while before < pool.free < goal - begun and state.writing_back[index] == begun:
        before = pool.free
        _evict_device(state, index, begun + 1)


@bug(reclaim, "evict_device", kills="spec")
def evictions_wait_for_every_write_back(state: Any, index: int, count: int) -> None:
    """While anything is written back, nothing is evicted."""
    if not any(state.writing_back):
        _evict_device(state, index, count)


@bug(kills="spec", components=("full", "swa", "mamba"))
def later_victims_skip_the_coldest(patch: Patch) -> None:
    """The second victim of an eviction is not the coldest."""
    turns = [0]

    def count_victims(state: Any, index: int, count: int) -> None:
        turns[0] = 0
        _evict_device(state, index, count)

    def second_of_the_others(queues: list[Any], policy: Any) -> Any:
        turns[0] += 1
        if turns[0] == 2:
            return _second_victim(queues, policy)
        return _next_victim(queues, policy)

    patch(reclaim, "evict_device", count_victims)
    patch(lru, "next_victim", second_of_the_others)


@bug(kills="spec", components=("full", "swa"))
def pools_short_together_skip_the_coldest(patch: Patch) -> None:
    """While two device pools are full, the coldest copy is not evicted first."""
    full = [False]

    def look_around(state: Any, index: int, count: int) -> None:
        full[0] = sum(not pool.free for pool in state.pools[0]) > 1
        _evict_device(state, index, count)
        full[0] = False

    def second_while_full(queues: list[Any], policy: Any) -> Any:
        return (_second_victim if full[0] else _next_victim)(queues, policy)

    patch(reclaim, "evict_device", look_around)
    patch(lru, "next_victim", second_while_full)


@bug(reclaim, "evict_device", kills="spec")
def retiring_pages_cost_another(state: Any, index: int, count: int) -> None:
    """While pages of a pool retire, an eviction there frees one page too many."""
    retiring = state.pools[0][index].counts[PageState.RETIRING]
    _evict_device(state, index, count + bool(retiring))


@bug(reclaim, "_under_copy", components=("full",), eviction="lru")
def copies_let_warmer_pages_go(state: Any) -> Iterator[int]:
    """While a cold page is being copied to host, warmer pages are evicted in its place."""
    return iter(())


@bug(reclaim, "_evict_copy", rows=("F1",))
def locked_leaf_is_evicted_whole(state: Any, node: Any, index: int, short: int) -> None:
    """A leaf with a locked backbone is evicted as a whole when its window or state is wanted."""
    if node.with_pages[0] == 0:
        reclaim._evict_leaf(state, node, index, span(node, state.stride))
    else:
        eviction.tombstone(state, node, Tier.DEVICE, index)


@bug(kills="device-prefix", components=("full", "mamba"))
def demoted_leaf_keeps_its_state_on_device(patch: Patch) -> None:
    """A leaf that is demoted for its pages leaves its state on device."""
    wanted: list[int] = []

    def evict(state: Any, node: Any, index: int, pages: int) -> Any:
        wanted.append(index)
        try:
            return _evict_leaf(state, node, index, pages)
        finally:
            wanted.pop()

    def all_but_states(state: Any, node: Any) -> None:
        demoted = node.pages[Tier.HOST][0] is not None and node.children == {}
        if not demoted or wanted != [0]:
            _demote(state, node)
            return
        for index, component in reversed([*enumerate(state.components)]):
            if component.positional and node.pages[Tier.DEVICE][index] is not None:
                eviction._free_copy(state, node, Tier.DEVICE, index)
        eviction._refile(state, node)

    patch(reclaim, "_evict_leaf", evict)
    patch(eviction, "demote", all_but_states)


@bug(reclaim, "_evict_leaf", kills="spec")
def eviction_writes_back_whole_leaves(state: Any, node: Any, index: int, pages: int) -> Any:
    """An eviction of one page copies the whole leaf to host."""
    if not index and reclaim._to_write_back(state, node, index, whole=True):
        pages = span(node, state.stride)
    return _evict_leaf(state, node, index, pages)


@bug(reclaim, "_to_write_back", rows=("G8",), kills="spec")
def tombstone_made_without_writing_back(
    state: Any, node: Any, index: int, whole: bool
) -> list[int]:
    """Under write_back the state or window of an inner node is dropped, not written back."""
    return _to_write_back(state, node, index, whole) if whole else []
