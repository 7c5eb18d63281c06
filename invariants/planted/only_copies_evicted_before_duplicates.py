"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Host evicts only copies before duplicates."
KILLS = "order-ref"

_next_victim = lru.next_victim


def _other_way_round(queues: list[Any], policy: Any) -> Any:
    return _next_victim(queues[::-1], policy)


def plant(patch: Patch) -> None:
    patch(lru, "next_victim", _other_way_round)
