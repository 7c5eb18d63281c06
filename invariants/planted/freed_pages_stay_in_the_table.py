"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Pages that no boundary requires are freed, and stay in the table of their request."
KILLS = ""


def _keep_names(state: Any, request: Any, index: int, gaps: list[slice]) -> None:
    table = request.tables[index]
    for gap in gaps:
        own = table[gap]
        state.pools[Tier.DEVICE][index].give_back(own[own >= 0])


def plant(patch: Patch) -> None:
    patch(insertion, "_give_back_at", _keep_names)
