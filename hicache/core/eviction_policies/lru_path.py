"""LRU in which every hit refreshes every component on its whole path.

This policy is here for comparison with `lru`. Unused states on the path stay as recent as the one
in use, so they displace the states of other prompts.
"""

from __future__ import annotations

from ..radix.node import Node
from .base import Term


class LruPath:
    name = "lru_path"
    whole_path = True
    order = (Term("last_use"),)

    def rank(self, node: Node, component: int) -> int:
        return node.last_use[component]


def policy() -> LruPath:
    return LruPath()
