"""Planted: see TITLE. `eviction._postorder` puts the children of each node into a set of labels."""

from __future__ import annotations

from hicache.core import eviction
from hicache.core.radix.node import Node

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The victims below a deleted node are evicted in the order of a set, which hashing decides."
KILLS = ""
HASHED = True


def _in_the_order_of_a_set(node: Node) -> list[Node]:
    order = [node]
    for above in order:
        order.extend(above.children[label] for label in set(above.children))
    return order[::-1]


def plant(patch: Patch) -> None:
    patch(eviction, "_postorder", _in_the_order_of_a_set)
