"""Bugs in `locks`: what a receipt locks, and its release."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch, bug

_unlock = locks._unlock
_lock = locks.lock
_release = locks.release
_required = locks.required
_unlock_above = locks.unlock_above


@bug(rows=("B1",), kills="lock-bal")
def tombstone_lock_is_released(patch: Patch) -> None:
    """A lock on a tombstone is not counted, and its release removes another lock."""

    def write_down(state: Any, receipt: Any, nodes: Any, tier: int, index: int = 0) -> None:
        chosen = list(nodes)
        missing = [(node, tier) for node in chosen if node.pages[tier][index] is None]
        _lock(state, receipt, chosen, tier, index)
        receipt.locked[index].extend(missing)

    def take_any(state: Any, receipt: Any, entries: Any, index: int) -> None:
        for node, tier in entries:
            holders = node.locks[tier][index]
            if receipt.id not in holders and holders:
                holders[receipt.id] = holders.pop(next(iter(holders)))
        there = [one for one in entries if receipt.id in one[0].locks[one[1]][index]]
        _unlock(state, receipt, there, index)

    patch(locks, "lock", write_down)
    patch(locks, "_unlock", take_any)


@bug(locks, "required", rows=("E6",))
def empty_path_crashes(path: Any, window_pages: int) -> Any:
    """A prompt that shares nothing, or has no whole page, raises an exception."""
    return path if path[-1].end_page <= window_pages else _required(path, window_pages)


@bug(rows=("B5",), kills="leaf-set")
def early_release_skips_the_last(patch: Patch) -> None:
    """After an early release of a window, the locks taken later are never released."""
    suffix = " (early)"

    def mark(state: Any, receipt: Any, index: int, end: int) -> None:
        before = len(receipt.locked[index])
        _unlock_above(state, receipt, index, end)
        if len(receipt.locked[index]) < before and not receipt.name.endswith(suffix):
            receipt.name += suffix

    def skip(state: Any, receipt: Any) -> None:
        if receipt.name.endswith(suffix):
            for entries in receipt.locked[1:]:
                entries.clear()
        _release(state, receipt)

    patch(locks, "unlock_above", mark)
    patch(locks, "release", skip)


@bug(locks, "unlock_above", rows=("B3",), kills="dlru")
def window_release_takes_locks_of_others(state: Any, receipt: Any, index: int, end: int) -> None:
    """The early release of a window releases locks that the request never held."""
    _unlock_above(state, receipt, index, end)
    for node, tier in receipt.locked[0]:
        holders = node.locks[tier][index]
        if tier == 0 and node.end_page <= end and len(holders) == 1:
            holders.clear()
            state.pools[0][index].protected -= len(node.pages[0][index])
            state.touched[node.id] = node


@bug(locks, "unlock_above", kills="leaf-set")
def windows_left_behind_stay_locked(state: Any, receipt: Any, index: int, end: int) -> None:
    """Windows that a growing request has left behind stay locked."""
    del state, receipt, index, end


@bug(locks, "lock_for_storage", kills="lock-bal")
def late_backups_leave_fetched_pages_unlocked(state: Any, node: Any) -> None:
    """A host copy that comes above what a store reads is not locked."""


@bug(locks, "release", kills="lock-bal")
def released_receipt_keeps_its_locks(state: Any, receipt: Any) -> None:
    """A released receipt is deleted, and what it locked stays locked."""
    del state
    for entries in receipt.locked:
        entries.clear()


@bug(locks, "release", kills="pool-sum")
def unlocked_pages_stay_protected(state: Any, receipt: Any) -> None:
    """A page whose last lock ends still counts as protected."""
    first = next((one for one in receipt.locked[0]), None)
    alone = first is not None and len(first[0].locks[first[1]][0]) == 1
    _release(state, receipt)
    if alone and first is not None:
        state.pools[first[1]][0].protected += 1
