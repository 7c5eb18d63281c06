"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A load copies the pages of full attention, and no window or state."
KILLS = "match-ref"

_to_load = placement._to_load


def _backbone_only(state: Any, path: list[Any]) -> list[list[Any]]:
    first, *others = _to_load(state, path)
    return [first, *([] for _ in others)]


def plant(patch: Patch) -> None:
    patch(placement, "_to_load", _backbone_only)
