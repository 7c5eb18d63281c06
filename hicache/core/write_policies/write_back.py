"""Write-back: back up a node only when its device pages are wanted."""

from __future__ import annotations


class WriteBack:
    name = "write_back"
    threshold = 0
    on_evict = True
    contiguous = not on_evict


def policy() -> WriteBack:
    return WriteBack()
