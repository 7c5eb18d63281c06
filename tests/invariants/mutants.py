"""Mutants of the core: each patch puts a bug of the kind users have met into the real code, and all
checks together must stop the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hicache.core import (
    admission,
    backup,
    boundaries,
    eviction,
    insertion,
    locks,
    lru,
    matching,
    reclaim,
    seating,
    transfers,
    tree,
    windows,
)
from hicache.core.components.base import UNBOUNDED
from hicache.core.policies.lru import Lru


def _keep_locks(state: Any, receipt: Any) -> None:
    for entries in receipt.locked:
        entries.clear()


def _forget_backup_lock(state: Any, flight: Any, ok: bool) -> None:
    if not ok:
        flight.receipt = None
    _LAND_BACKUP(state, flight, ok)


def _publish_failed_backup(state: Any, flight: Any, ok: bool) -> None:
    _LAND_BACKUP(state, flight, True)


def _adopt_failed_load(state: Any, flight: Any) -> None:
    transfers.land(state, flight)


def _split_without_locks(state: Any, node: Any, at: int) -> Any:
    upper = _SPLIT(state, node, at)
    for tier in (0, 1):
        upper.holders[tier][0].clear()
    return upper


def _evict_too_much(state: Any, index: int, count: int) -> bool:
    reclaim.evict_device(state, index, count + 3)
    return bool(state.pools[0][index].free >= count)


def _hottest_first(self: Lru, node: Any, component: int) -> int:
    return -int(node.last_use[component])


def _keep_duplicates(state: Any, request: Any, path: list[Any]) -> None:
    table = request.tables[0]
    _SHARE(state, request, path)
    request.tables[0] = table


def _no_source_lock(state: Any, flight: Any, path: list[Any], loads: list[Any]) -> None:
    flight.receipt = transfers.open_receipt(state, "load")


def _drop_keeps_node(state: Any, node: Any, tier: Any, pages: int) -> None:
    eviction.vacate(state, eviction.tail(state, node, pages), tier)


# Of windows and states.


def _load_the_backbone_only(state: Any, path: list[Any]) -> list[list[Any]]:
    loads = _TO_LOAD(state, path)
    return [loads[0], *([] for _ in loads[1:])]


def _what_serves_goes_first(queues: list[Any], policy: Any) -> Any:
    for garbage in (False, True):
        for queue in queues:
            node = lru._pop(queue, policy, garbage)
            if node is not None:
                return node
    return None


def _mix_up_tracks(request: Any, flight: Any) -> None:
    for index, depth, slot in flight.checkpoints:
        request.tracked[index][2 - slot] = depth


def _keep_the_window(state: Any, receipt: Any, index: int, end: int) -> None:
    pass


def _boundaries_never_die(state: Any, node: Any, index: int) -> None:
    if boundaries.is_there(node, index):
        _CHANGED(state, node, index)


def _back_up_the_backbone_only(state: Any, node: Any) -> list[int]:
    return [index for index in _MISSING(state, node) if not index]


def _drain_nothing_else(state: Any, node: Any, index: int, whole: bool) -> list[int]:
    return [] if index else _TO_DRAIN(state, node, index, whole)


def _donate_and_keep(state: Any, request: Any, path: list[Any], made: Any) -> None:
    tables = list(request.tables)
    _DONATE(state, request, path, made)
    request.tables[:] = tables


def _forget_no_page(state: Any, request: Any, index: int, gaps: Any) -> None:
    table = request.tables[index].copy()
    for gap in gaps:
        table[gap] = -1
    table.flags.writeable = False
    request.tables[index] = table


def _clear_no_page(state: Any, request: Any, index: int, first: int) -> None:
    request.cleared[index] = first
    _forget_no_page(state, request, index, [slice(0, first)])


def _any_window(path: Any, ends: Any, upto: int, index: int, reach: int, on_device: bool) -> int:
    if 0 < reach < UNBOUNDED:
        return upto
    found: int = _DEEPEST(path, ends, upto, index, reach, on_device)
    return found


_DEEPEST = matching._deepest
_LAND_BACKUP, _SPLIT, _SHARE = backup.land_backup, tree.split, insertion._share
_TO_LOAD, _CHANGED, _MISSING = seating._to_load, boundaries.changed, backup.missing_on_host
_TO_DRAIN, _DONATE = reclaim._to_drain, insertion._donate

Patch = tuple[Any, str, Callable[..., Any] | bool]

OF_ANY: dict[str, list[Patch]] = {
    "release forgets": [(admission, "release", _keep_locks)],
    "failed backup keeps its lock": [("core", "land_backup", _forget_backup_lock)],
    "failed backup is published": [("core", "land_backup", _publish_failed_backup)],
    "failed load is adopted": [("core", "cancel_load", _adopt_failed_load)],
    "split loses locks": [
        (module, "split", _split_without_locks) for module in ("matching", "eviction")
    ],
    "eviction overshoots": [(seating, "make_device_room", _evict_too_much)],
    "hottest goes first": [(Lru, "rank", _hottest_first)],
    "duplicates stay in the table": [(insertion, "_share", _keep_duplicates)],
    "load does not lock its source": [(seating, "lock_for_load", _no_source_lock)],
    "drop leaves an empty node": [(reclaim, "drop", _drop_keeps_node)],
}
MUTANTS_OF_HYBRIDS: dict[str, list[Patch]] = {
    "a load forgets windows and states": [(seating, "_to_load", _load_the_backbone_only)],
    "what serves goes before garbage": [
        (module, "next_victim", _what_serves_goes_first) for module in (eviction, reclaim)
    ],
    "a state of another depth is donated": [(admission, "note_checkpoints", _mix_up_tracks)],
    "a window's locks stay behind": [
        (module, "unlock_above", _keep_the_window) for module in (locks, windows)
    ],
    "a dead boundary counts as live": [(tree, "changed", _boundaries_never_die)],
    "windows and states are never backed up": [
        (backup, "missing_on_host", _back_up_the_backbone_only)
    ],
    "windows and states are dropped, not drained": [(reclaim, "_to_drain", _drain_nothing_else)],
    "a donated state stays with its request": [(insertion, "_donate", _donate_and_keep)],
    "pages behind the window leak": [
        (insertion, "_forget", _forget_no_page),
        (windows, "_clear", _clear_no_page),
    ],
    "any window will do": [(matching, "_deepest", _any_window)],
    "a hit warms the whole path": [(Lru, "whole_path", True)],
    "an evicted leaf overshoots": [(seating, "make_device_room", _evict_too_much)],
    "hottest goes first, of each component": [(Lru, "rank", _hottest_first)],
}
MUTANTS = OF_ANY | MUTANTS_OF_HYBRIDS
