"""Least frequently used first; of nodes with the same hit count, the least recently used.

A hit count never falls, so a node that was once popular stays for a long time.
"""

from __future__ import annotations

from ..radix.node import Node
from .base import Term, before


class Lfu:
    name = "lfu"
    whole_path = False
    order = (Term("hits"), Term("last_use"))

    def rank(self, node: Node, component: int) -> int:
        return before(node.hits, node.last_use[component])


def policy() -> Lfu:
    return Lfu()
