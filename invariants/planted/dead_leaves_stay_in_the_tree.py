"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A leaf that loses its last live boundary by an eviction stays in the tree."
KILLS = "dead-leaf"


def _lazy(state: Any) -> None:
    state.dead.clear()


def plant(patch: Patch) -> None:
    patch(eviction, "delete_dead", _lazy)
