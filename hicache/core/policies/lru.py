"""Least recently used first. A tick belongs to one path, so two leaves never share one."""

from __future__ import annotations

from ..node import Node


class Lru:
    name = "lru"

    def rank(self, node: Node) -> int:
        return node.last_use


def eviction() -> Lru:
    return Lru()
