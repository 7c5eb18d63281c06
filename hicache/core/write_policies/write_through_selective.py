"""Write-through selective: back up a node when a second request uses it."""

from __future__ import annotations


class WriteThroughSelective:
    name = "write_through_selective"
    threshold = 2
    on_evict = False
    contiguous = not on_evict


def policy() -> WriteThroughSelective:
    return WriteThroughSelective()
