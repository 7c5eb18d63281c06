"""Bugs in `eviction`: what becomes of a victim, its node and its copies."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from hicache.core.radix.node import Node
from hicache.core.state import State
from hicache.core.types import Tier

from .base import bug

_give_back = eviction._give_back
_delete_dead = eviction.delete_dead
_delete_tail = eviction.delete_tail
_demote = eviction.demote
_give_up_host = eviction.give_up_host
_make_host_room = eviction.make_host_room
_tombstone = eviction.tombstone


@bug(eviction, "make_host_room", kills="spec")
def backups_evict_one_host_page_too_many(state: Any, index: int, count: int) -> bool:
    """A backup evicts one host page more than it needs."""
    _make_host_room(state, index, count + 1)
    return _make_host_room(state, index, count)


@bug(eviction, "give_up_host", kills="spec")
def host_copies_of_pages_in_use_are_kept(state: Any, nodes: list[Any]) -> None:
    """An exclusive host keeps the copies of pages that a request uses on device."""
    _give_up_host(state, [node for node in nodes if not any(node.locks[0])])


@bug(eviction, "give_up_host", kills="spec")
def loaded_pages_keep_their_host_copy(state: Any, nodes: Any) -> None:
    """With an exclusive host, a page that was loaded keeps its host copy."""


@bug(eviction, "demote", kills="device-prefix")
def windows_stay_on_device_without_backbone(state: Any, node: Any) -> None:
    """A leaf that is evicted from device leaves its windows and states there."""
    if node.pages[1][0] is not None:
        eviction._free_copy(state, node, Tier.DEVICE, 0)
        eviction._refile(state, node)
        return
    _demote(state, node)


@bug(eviction, "leave_tier", hashed=True)
def victims_follow_a_set(state: State, node: Node, tier: Tier) -> None:
    """The components of a victim are evicted in the order of a set, which hashing decides."""
    names = state.config.components
    for name in set(names):
        index = names.index(name)
        if node.pages[tier][index] is not None:
            eviction._free_copy(state, node, tier, index)


@bug(eviction, "tombstone", kills="spec", components=("full", "swa", "mamba"))
def tombstones_take_earlier_components_along(state: Any, node: Any, tier: Any, index: int) -> None:
    """An evicted state takes the window of its node along if that is on the other tier, too."""
    _tombstone(state, node, tier, index)
    for earlier in range(1, index):
        twice = node.pages[0][earlier] is not None and node.pages[1][earlier] is not None
        if twice and not node.locks[tier][earlier]:
            _tombstone(state, node, tier, earlier)


@bug(eviction, "delete_tail", kills="spec")
def deletions_free_a_host_copy_elsewhere(state: Any, node: Any, tier: Any, pages: int) -> None:
    """What is deleted from device takes a page of another prefix on host along."""
    _delete_tail(state, node, tier, pages)
    if tier == Tier.DEVICE:
        eviction.evict_host(state, 0, 1)


@bug(eviction, "delete_tail", rows=("G3",), kills="dead-node")
def write_back_leaves_an_empty_node(state: Any, node: Any, tier: Any, pages: int) -> None:
    """A leaf that host has no room for leaves the device, and stays an empty node."""
    if tier == Tier.DEVICE:
        eviction.demote(state, eviction.cut_tail(state, node, pages))
    else:
        _delete_tail(state, node, tier, pages)


@bug(eviction, "delete_dead", kills="dead-leaf", components=("full", "mamba"))
def dead_leaves_below_locked_nodes_stay(state: Any) -> None:
    """A leaf without a live boundary stays while the node above it is locked."""
    state.dead[:] = [
        node for node in state.dead if node.parent is None or not any(map(any, node.parent.locks))
    ]
    _delete_dead(state)


@bug(eviction, "delete_dead", kills="spec")
def dead_leaves_stay_in_the_tree(state: Any) -> None:
    """A leaf that loses its last live boundary by an eviction stays in the tree."""
    state.dead.clear()


@bug(eviction, "delete_dead", kills="spec", components=("full", "mamba"))
def live_parents_of_dead_leaves_go_too(state: Any) -> None:
    """With a dead leaf goes the node above it, although its own end is a live boundary."""
    while state.dead:
        node = state.dead.pop()
        used = node.children or node.legs or any(map(any, node.locks))
        if node.parent is not None and not used:
            eviction.delete(state, node)


@bug(eviction, "_refile", rows=("F10",), kills="hlru")
def demoted_copy_is_not_queued(state: Any, node: Any) -> None:
    """A host copy that remains after an eviction is in no eviction queue of host."""


@bug(eviction, "_give_back", rows=("L1",), kills="spec")
def demotion_reported_as_loss(state: Any, tier: Any, index: int, pages: Any, node: Any) -> None:
    """An eviction that leaves a copy on host is reported as a loss."""
    _give_back(state, tier, index, pages, node)
    state.out[-1] = state.out[-1]._replace(demoted=False)


@bug(eviction, "_give_back", rows=("A3",), kills="own-h")
def host_pages_freed_in_every_pool(
    state: Any, tier: Any, index: int, pages: Any, node: Any
) -> None:
    """Host pages that one pool frees are put on the free lists of all pools."""
    _give_back(state, tier, index, pages, node)
    for other, pool in enumerate(state.pools[tier]):
        if tier == Tier.HOST and other != index:
            known = pages[pages < pool.capacity]
            pool.give_back(known[pool.state[known] == 2])
