"""Planted in `lru._sweep`: it leaves the heap as it is and waits until it has doubled."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Stale entries stay in the eviction queues and keep deleted nodes in memory."
KILLS = "rss-bound"


def _put_off(queue: Any, garbage: bool) -> None:
    queue.sweep_at[garbage] *= 2


def plant(patch: Patch) -> None:
    patch(lru, "_sweep", _put_off)
