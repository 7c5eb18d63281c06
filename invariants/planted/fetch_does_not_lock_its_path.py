"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import prefetch

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A fetch does not lock the host copies that its pages continue."
KILLS = "lock-bal"


def _nothing(state: Any, known: Any, end: int) -> list[list[Any]]:
    return [[] for _ in state.components]


def plant(patch: Patch) -> None:
    patch(prefetch, "_to_lock", _nothing)
