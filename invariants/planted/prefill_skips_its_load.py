"""Planted in `admission._begin_prefill`: the pass does not name its load."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ("C4",)
TITLE = "A prefill is not told of the load that it must wait for."
KILLS = "read-after-arrive"

_begin_prefill = admission._begin_prefill


def _at_once(state: Any, request: Any, end: int) -> None:
    _begin_prefill(state, request, end)
    state.out[-1] = state.out[-1]._replace(after=())


def plant(patch: Patch) -> None:
    patch(admission, "_begin_prefill", _at_once)
