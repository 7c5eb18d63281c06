"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import fetched
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The last page that a fetch brought is freed instead of being put into the tree."
KILLS = "whole-fetch"
EXCUSES = (Reason.LOST_PREFIX,)

_land = fetched._land


def _one_less(state: Any, flight: Any, pages: int, owner: Any) -> int:
    return _land(state, flight, max(0, pages - 1), owner)


def plant(patch: Patch) -> None:
    patch(fetched, "_land", _one_less)
