"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.runtime.agreement import Agreement

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Ranks agree on the number of replies, and each applies those that ended first on it."
KILLS = ""
RANKS = 2

_end = Agreement.end


def _to_the_front(self: Agreement, reply: Any) -> None:
    _end(self, reply)
    for lane in self._lanes.values():
        if reply.flight in lane:
            ahead = sum(one in self._ended for one in lane if one != reply.flight)
            lane.remove(reply.flight)
            lane.insert(ahead, reply.flight)


def plant(patch: Patch) -> None:
    patch(Agreement, "end", _to_the_front)
