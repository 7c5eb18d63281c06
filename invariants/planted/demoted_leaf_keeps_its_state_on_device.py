"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction, reclaim
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A leaf that is demoted for its pages leaves its state on device."
KILLS = "device-prefix"
COMPONENTS = ("full", "mamba")
_evict_leaf, _demote = reclaim._evict_leaf, eviction.demote
_WANTED: list[int] = []


def _evict(state: Any, node: Any, index: int, pages: int) -> Any:
    _WANTED.append(index)
    try:
        return _evict_leaf(state, node, index, pages)
    finally:
        _WANTED.pop()


def _all_but_states(state: Any, node: Any) -> None:
    demoted = node.pages[Tier.HOST][0] is not None and node.children == {}
    if not demoted or _WANTED != [0]:
        _demote(state, node)
        return
    for index, component in reversed([*enumerate(state.components)]):
        if component.positional and node.pages[Tier.DEVICE][index] is not None:
            eviction._free_copy(state, node, Tier.DEVICE, index)
    eviction._refile(state, node)


def plant(patch: Patch) -> None:
    _WANTED.clear()
    patch(reclaim, "_evict_leaf", _evict)
    patch(eviction, "demote", _all_but_states)
