"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import prefetch

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request looks up a page that a prefetch under way brings."
KILLS = "prefetch-wait"


def _nothing(state: Any, depth: int, digest: bytes) -> None:
    return None


def plant(patch: Patch) -> None:
    patch(prefetch, "_underway", _nothing)
