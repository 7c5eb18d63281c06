"""Segmented LRU: nodes that only one request used are on probation and are evicted before nodes
that several requests used, which are protected. In each segment, least recently used first.

    hits   1         probation
           2, 3 ...  protected

The protected segment has no size limit. If it fills the pool, this policy is LRU over the nodes
that were used again. A node never goes back to probation, so its rank never falls.
"""

from __future__ import annotations

from ..radix.node import Node
from .base import Term, before

PROTECTED = 2  # hits


class Slru:
    name = "slru"
    whole_path = False
    order = (Term("hits", PROTECTED), Term("last_use"))

    def rank(self, node: Node, component: int) -> int:
        return before(min(node.hits, PROTECTED), node.last_use[component])


def policy() -> Slru:
    return Slru()
