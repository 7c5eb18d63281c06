"""Least recently used first, separately for each component. A hit refreshes a component only at the
nodes where its boundary requires it, not at the nodes above them."""

from __future__ import annotations

from ..radix.node import Node
from .base import Term


class Lru:
    name = "lru"
    whole_path = False
    order = (Term("last_use"),)

    def rank(self, node: Node, component: int) -> int:
        return node.last_use[component]


def policy() -> Lru:
    return Lru()
