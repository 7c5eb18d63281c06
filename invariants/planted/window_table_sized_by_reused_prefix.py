"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ("J10",)
TITLE = "The table of a windowed component has entries for the reused prefix only."
KILLS = ""

_begin_prefill = admission._begin_prefill


def _short_table(state: Any, request: Any, end: int) -> None:
    for index, component in enumerate(state.components):
        if index and component.positional:
            request.tables[index] = request.tables[index][: request.filled_pages]
    _begin_prefill(state, request, end)


def plant(patch: Patch) -> None:
    patch(admission, "_begin_prefill", _short_table)
