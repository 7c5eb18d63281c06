"""Least recently used first, each component by what requests used of it: a hit refreshes the nodes
that its boundary requires of a component, not those above them."""

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
