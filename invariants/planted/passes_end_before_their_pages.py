"""Planted in `admission._begin_prefill`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A pass that takes the last page of a window pool ends a page before it."
KILLS = "answers"
COMPONENTS = ("full", "swa")
EXCUSES = (Reason.NO_PAGE_LEFT,)

_begin_prefill = admission._begin_prefill


def _shorter(state: Any, request: Any, end: int) -> None:
    size = state.config.page_size
    empty = any(not state.pools[0][index].available for index in state.bounded)
    if empty and request.computed_tokens < end - size and end < request.length:
        end -= size
    _begin_prefill(state, request, end)


def plant(patch: Patch) -> None:
    patch(admission, "_begin_prefill", _shorter)
