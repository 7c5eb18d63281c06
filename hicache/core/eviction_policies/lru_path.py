"""The naive order: every hit refreshes every component of its whole path.

Here to be compared with: states that were left on the way and are never used again stay as recent
as the one in use, and push out the states of others.
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
