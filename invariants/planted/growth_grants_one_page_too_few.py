"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A growth that needs a new page is granted with one page too few."
KILLS = "no-oom"

_extend = admission._extend


def _one_short(state: Any, request: Any, total: int) -> None:
    _extend(state, request, max(len(request.tables[0]), total - 1))


def plant(patch: Patch) -> None:
    patch(admission, "_extend", _one_short)
