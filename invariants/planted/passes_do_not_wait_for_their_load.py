"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission
from hicache.core.actions import Prefill

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A pass does not wait for the load that it reads."
KILLS = "read-after-arrive"

_begin_prefill = admission._begin_prefill


def _after_nothing(state: Any, request: Any, end: int) -> None:
    _begin_prefill(state, request, end)
    item = state.out[-1]
    if type(item) is Prefill:
        state.out[-1] = item._replace(after=())


def plant(patch: Patch) -> None:
    patch(admission, "_begin_prefill", _after_nothing)
