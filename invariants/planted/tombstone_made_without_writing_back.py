"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim

from .base import Patch

ROWS: tuple[str, ...] = ("G8",)
TITLE = "Under write_back the state or window of an inner node is dropped, not written back."
KILLS = "durable"

_to_write_back = reclaim._to_write_back


def _leaves_only(state: Any, node: Any, index: int, whole: bool) -> list[int]:
    return _to_write_back(state, node, index, whole) if whole else []


def plant(patch: Patch) -> None:
    patch(reclaim, "_to_write_back", _leaves_only)
