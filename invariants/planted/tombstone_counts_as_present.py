"""Planted in `boundaries.is_there`: a tombstone is taken for a copy."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import boundaries

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A boundary whose window or state is gone counts as live."
KILLS = "near"


def _always(node: Any, index: int) -> bool:
    return True


def plant(patch: Patch) -> None:
    patch(boundaries, "is_there", _always)
