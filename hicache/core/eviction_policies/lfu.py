"""Least frequently used first; of nodes that equally many requests used, the least recently used.

A count never falls, so what was popular once stays for long.
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
