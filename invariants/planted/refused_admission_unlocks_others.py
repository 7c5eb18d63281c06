"""Planted in `placement._undo`: it also removes a lock of other requests."""

from __future__ import annotations

from typing import Any

from hicache.core import placement

from .base import Patch

ROWS: tuple[str, ...] = ("B2",)
TITLE = "An admission that is refused releases window locks of other requests."
KILLS = "lock-bal"

_undo = placement._undo


def _to_the_root(state: Any, plan: Any) -> None:
    _undo(state, plan)
    for node in plan.path:
        for index, holders in enumerate(node.locks[0]):
            if index and holders:
                del holders[next(iter(holders))]
                state.touched[node.id] = node


def plant(patch: Patch) -> None:
    patch(placement, "_undo", _to_the_root)
