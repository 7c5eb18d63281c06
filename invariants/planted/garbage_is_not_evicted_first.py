"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A copy that serves a live boundary is evicted before one that serves none."
KILLS = "garbage-first"


def _serving_first(queues: list[Any], policy: Any) -> Any:
    for garbage in (False, True):
        for queue in queues:
            node = lru._pop(queue, policy, garbage, int(garbage))
            if node is not None:
                return node
    return None


def plant(patch: Patch) -> None:
    patch(lru, "next_victim", _serving_first)
