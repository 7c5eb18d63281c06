"""The naive order: every hit refreshes every component of its whole path.

Here to be compared with: states that were left on the way and are never used again stay as warm as
the one that is, and push out the states of others.
"""

from __future__ import annotations

from ..radix.node import Node


class LruPath:
    name = "lru_path"
    whole_path = True

    def rank(self, node: Node, component: int) -> int:
        return node.last_use[component]


def eviction() -> LruPath:
    return LruPath()
