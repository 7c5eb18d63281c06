"""First in, first out: by the time at which a node came into the tree. A hit changes nothing."""

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
