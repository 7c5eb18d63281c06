"""Lowest priority first; within one priority, least recently used first. The priority of a node is
the highest among the requests that used it. The caller gives each request its priority
(`Arrived.priority`)."""

from __future__ import annotations

from ..radix.node import Node
from .base import Term, before


class Priority:
    name = "priority"
    whole_path = False
    order = (Term("priority"), Term("last_use"))

    def rank(self, node: Node, component: int) -> int:
        return before(node.priority, node.last_use[component])


def policy() -> Priority:
    return Priority()
