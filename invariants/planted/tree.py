"""Bugs in `tree`: nodes are split, cut, linked and given pages."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import KvRemoved, KvStored
from hicache.core.radix import tree
from hicache.core.radix.node import count_child
from hicache.core.types import Tier

from .base import Patch, bug

_attach = tree.attach
_detach = tree.detach
_digests_of = tree.digests_of
_split = tree.split
_truncate = tree.truncate
_unlink = tree.unlink


@bug(tree, "split", kills="spec", eviction="fifo")
def split_halves_are_inserted_anew(state: Any, node: Any, at: int) -> Any:
    """The upper half of a node that is split counts as inserted by the split."""
    upper = _split(state, node, at)
    upper.inserted = state.tick
    return upper


@bug(tree, "split", kills="lock-bal")
def split_upper_half_has_no_locks(state: Any, node: Any, at: int) -> Any:
    """The upper half of a node that is split has no locks."""
    upper = _split(state, node, at)
    for tier in (0, 1):
        upper.locks[tier][0].clear()
    return upper


@bug(tree, "attach", rows=("L1",), kills="event-mirror")
def host_copies_publish_no_event(state: Any, node: Any, tier: Any, index: int, pages: Any) -> None:
    """A copy that arrives on host publishes no store event, while its removal does."""
    _attach(state, node, tier, index, pages)
    if tier == Tier.HOST and state.out and type(state.out[-1]) is KvStored:
        state.out.pop()


@bug(tree, "attach", kills="spec")
def load_lands_backbone_only(state: Any, node: Any, tier: int, index: int, pages: Any) -> None:
    """When a load is done, only the pages of full attention become pages of nodes."""
    if index:
        state.pools[tier][index].give_back(pages)
    else:
        _attach(state, node, tier, index, pages)


@bug(tree, "detach", kills="leaf-set")
def children_on_device_are_miscounted(state: Any, node: Any, tier: int, index: int) -> Any:
    """A node that loses a child on device is not offered for eviction."""
    pages = _detach(state, node, tier, index)
    if not index and node.parent is not None and node.parent.parent is not None:
        count_child(node.parent, tier, 1)
    return pages


@bug(tree, "detach", kills="leaf-set")
def root_child_count_is_not_decreased(state: Any, node: Any, tier: int, index: int) -> Any:
    """The root still counts a child that has left the tier."""
    parent = node.parent
    pages = _detach(state, node, tier, index)
    if index == 0 and parent is not None and parent.parent is None:
        count_child(parent, tier, 1)
    return pages


@bug(tree, "truncate", kills="tree-link")
def truncated_key_keeps_one_token(state: Any, node: Any, tier: int, keep: int) -> Any:
    """The key of a truncated node keeps the first token of what was cut off."""
    key = node.key
    pages = _truncate(state, node, tier, keep)
    node.key = key[: keep * state.stride + 8]
    return pages


@bug(tree, "truncate", kills="tree-link")
def truncated_nodes_keep_their_key(state: Any, node: Any, tier: int, keep: int) -> Any:
    """A truncated node keeps the key of the pages that it lost."""
    key = node.key
    pages = _truncate(state, node, tier, keep)
    node.key = key
    return pages


@bug(tree, "truncate", rows=("L1",), kills="event-mirror")
def truncation_publishes_no_removal(state: Any, node: Any, tier: int, keep: int) -> Any:
    """A node that loses its last pages publishes no removal."""
    begun = len(state.out)
    pages = _truncate(state, node, tier, keep)
    state.out[begun:] = [item for item in state.out[begun:] if type(item) is not KvRemoved]
    return pages


@bug(tree, "unlink", rows=("A10",))
def removed_node_keeps_its_parent(state: Any, node: Any) -> None:
    """A node that was removed still refers to its parent."""
    parent = node.parent
    _unlink(state, node)
    node.parent = parent


@bug(rows=("H9",))
def digests_of_a_split_node_are_remembered(patch: Patch) -> None:
    """The digests of a node are remembered, and used again after a split."""
    known: dict[Any, tuple[bytes, ...]] = {}

    def remembered(state: Any, node: Any) -> tuple[bytes, ...]:
        found = known.setdefault(node, _digests_of(state, node))
        count = len(node.key) // state.stride
        return found[:count]

    patch(tree, "digests_of", remembered)
