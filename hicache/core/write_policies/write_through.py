"""Write-through: back up a node at its first use, as soon as it is in the tree."""

from __future__ import annotations


class WriteThrough:
    name = "write_through"
    threshold = 1
    on_evict = False
    contiguous = not on_evict


def policy() -> WriteThrough:
    return WriteThrough()
