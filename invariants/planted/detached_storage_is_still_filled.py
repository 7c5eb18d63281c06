"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import stores

from .base import Patch

ROWS = ("C14",)
TITLE = "Copies are stored although storage was detached."
KILLS = "answers"

_store_backed_up = stores.store_backed_up


def _all_the_same(state: Any, nodes: Any) -> None:
    attached, state.attached = state.attached, True
    _store_backed_up(state, nodes)
    state.attached = attached


def plant(patch: Patch) -> None:
    patch(stores, "store_backed_up", _all_the_same)
