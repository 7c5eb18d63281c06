"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Leaves that lost their last live boundary are not dropped after an eviction."
KILLS = "leaf-live"


def _keep_them(state: Any) -> None:
    state.dead.clear()


def plant(patch: Patch) -> None:
    patch(eviction, "prune", _keep_them)
