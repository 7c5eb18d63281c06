"""Planted in `admission._begin_prefill`: the window is counted from the end of the pass."""

from __future__ import annotations

from typing import Any

from hicache.core import admission
from hicache.core.requests import windows

from .base import Patch

ROWS: tuple[str, ...] = ("F7",)
TITLE = "The window that a pass reads is freed for the end of that pass."
KILLS = "no-oom"

_begin_prefill = admission._begin_prefill


def _from_its_end(state: Any, request: Any, end: int) -> None:
    windows.release_behind(state, request, end)
    _begin_prefill(state, request, end)


def plant(patch: Patch) -> None:
    patch(admission, "_begin_prefill", _from_its_end)
