"""The last word on content: every page that the tree holds, on either tier, against its prefix.

Lives here: which tag belongs on which of a node's pages. Must not live here: how bytes are compared
(memory), or any judgement of the tree itself (invariants).
"""

from __future__ import annotations

from hicache.core.radix.node import Node
from hicache.core.types import Key, Tier
from hicache.core.view import CoreView

from .content import Words, prefix_tags
from .device.memory import Memory


def audit(view: CoreView, memory: Memory) -> None:
    """Nothing is in flight. Raises WrongBytesError for the first page that is another's."""
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
    """Of every page on its path."""
    runs, node = [leaf.key], leaf
    while node.parent is not None and node.parent.parent is not None:
        node = node.parent
        runs.append(node.key)
    stride = len(leaf.key) // (leaf.end_page - (leaf.parent.end_page if leaf.parent else 0))
    # the root holds a child by its namespace, a zero byte and its first row, or by the row alone
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
