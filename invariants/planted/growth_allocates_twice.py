"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A granted growth allocates its pages twice, and the first ones leak."
KILLS = ""
FAULTS = ("step ahead rejected",)

_extend = admission._extend


def _twice(state: Any, request: Any, total: int) -> None:
    tables = list(request.tables)
    _extend(state, request, total)
    lost = len(request.tables[0]) - len(tables[0])
    if state.pools[0][0].free >= lost and len(tables) == 1:
        request.tables = tables
        _extend(state, request, total)


def plant(patch: Patch) -> None:
    patch(admission, "_extend", _twice)
