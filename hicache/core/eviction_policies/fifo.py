"""First in, first out: the node that was inserted first is evicted first. Hits change nothing."""

from __future__ import annotations

from ..radix.node import Node
from .base import Term


class Fifo:
    name = "fifo"
    whole_path = False
    order = (Term("inserted"),)

    def rank(self, node: Node, component: int) -> int:
        return node.inserted


def policy() -> Fifo:
    return Fifo()
