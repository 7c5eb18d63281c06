"""The lowest priority first, least recently used first within one. A node has the highest priority
among the requests that used it; a request has the one that its caller gave (`Arrived.priority`)."""

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
