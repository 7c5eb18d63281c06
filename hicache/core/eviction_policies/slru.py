"""Segmented LRU: what one request alone used is on probation and goes before what several used,
which is protected; least recently used first in each segment.

    hits   1         probation
           2, 3 ...  protected

The protected segment has no share of its own: it may fill the pool, and then this is LRU among what
was used again. A node is never moved back to probation, so its rank only grows.
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
