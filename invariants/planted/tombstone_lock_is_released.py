"""Planted in `locks.lock` and `locks._unlock`: a tombstone counts as locked."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ("B1",)
TITLE = "A lock on a tombstone is not counted, and its release removes another lock."
KILLS = "lock-bal"

_lock, _unlock = locks.lock, locks._unlock


def _write_down(state: Any, receipt: Any, nodes: Any, tier: int, index: int = 0) -> None:
    chosen = list(nodes)
    missing = [(node, tier) for node in chosen if node.pages[tier][index] is None]
    _lock(state, receipt, chosen, tier, index)
    receipt.locked[index].extend(missing)


def _take_any(state: Any, receipt: Any, entries: Any, index: int) -> None:
    for node, tier in entries:
        holders = node.locks[tier][index]
        if receipt.id not in holders and holders:
            holders[receipt.id] = holders.pop(next(iter(holders)))
    there = [one for one in entries if receipt.id in one[0].locks[one[1]][index]]
    _unlock(state, receipt, there, index)


def plant(patch: Patch) -> None:
    patch(locks, "lock", _write_down)
    patch(locks, "_unlock", _take_any)
