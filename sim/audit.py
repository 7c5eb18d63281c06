"""Compares the content of every page in the tree with its prefix, at the end of a run.

Lives here: which tag each page of a node must hold. Does not compare bytes (see memory) and does
not check the tree itself (see invariants).
"""

from __future__ import annotations

from hicache.core.radix.node import Node
from hicache.core.types import Key, Tier
from hicache.core.view import CoreView

from .content import Words, prefix_tags
from .device.memory import Memory


def audit(view: CoreView, memory: Memory) -> None:
    """Compares all pages of both tiers. Call it when nothing is in flight.

    Raises WrongBytesError for the first page that holds the content of another prefix.
    """
    seen: dict[int, None] = {}
    for leaf in view.nodes():
        if leaf.children:
            continue
        tags = _tags(leaf)
        node = leaf
        while node.parent is not None and node.id not in seen:
            seen[node.id] = None
            _compare(view, memory, node, tags)
            node = node.parent


def _tags(leaf: Node) -> Words:
    """Tags of all pages on the path from the root to this leaf: uint64[leaf.end_page]."""
    runs, node = [leaf.key], leaf
    while node.parent is not None and node.parent.parent is not None:
        node = node.parent
        runs.append(node.key)
    stride = len(leaf.key) // (leaf.end_page - (leaf.parent.end_page if leaf.parent else 0))
    # The root labels a child by its namespace, a zero byte and its first row, or by the row alone.
    namespace = node.label[: -stride - 1].decode()
    return prefix_tags(Key(b"".join(reversed(runs)), stride, namespace))


def _compare(view: CoreView, memory: Memory, node: Node, tags: Words) -> None:
    assert node.parent is not None
    first, last, layers = node.parent.end_page, node.end_page, (0, memory.layers)
    for index, component in enumerate(view.components):
        expected = tags[first:last] if component.positional else tags[last - 1 : last]
        for tier in (Tier.DEVICE, Tier.HOST):
            pages = node.pages[tier][index]
            if pages is not None:
                place = (tier, component.name)
                memory.verify(place, pages, expected, layers, f"the end, node {node.id}")
