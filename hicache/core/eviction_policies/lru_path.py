"""LRU in which every hit refreshes every component on its whole path; of the windows and states of
one path, those near the root go first.

This policy is here for comparison with `lru`. Unused states on the path stay as recent as the one
in use, so they displace the states of other prompts. The order follows `MambaRadixCache` of SGLang
before pull request 31643: a use moves all states of its path to the recent end of a list, each
deeper one nearer to that end, and victims are taken from the other end. So a path keeps its deepest
state, from which the next request continues, until all others are gone.
"""

from __future__ import annotations

from ..radix.node import Node
from .base import Term, before, depth


class LruPath:
    name = "lru_path"
    whole_path = True
    order = (Term("last_use"), Term("depth"))

    def rank(self, node: Node, component: int) -> int:
        return before(node.last_use[component], depth(node, component))


def policy() -> LruPath:
    return LruPath()
