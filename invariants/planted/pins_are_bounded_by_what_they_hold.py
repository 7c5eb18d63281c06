"""Planted in `pinning._needed`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.wants import pinning

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The bound of pins counts no page of a prefix but the first."
KILLS = "pinned"
WANTED = True


def _one(state: Any, pages: int, index: int) -> int:
    return 1


def plant(patch: Patch) -> None:
    patch(pinning, "_needed", _one)
