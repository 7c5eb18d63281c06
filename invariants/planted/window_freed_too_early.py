"""Planted in `windows.release_behind`: one page too many counts as computed."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import windows

from .base import Patch

ROWS: tuple[str, ...] = ("C8",)
TITLE = "Pages of a window are freed while the request still attends to them."
KILLS = "lock-bal"

_release_behind = windows.release_behind


def _a_page_ahead(state: Any, request: Any, computed: int, exactly: bool = False) -> None:
    _release_behind(state, request, computed + state.config.page_size, exactly)


def plant(patch: Patch) -> None:
    patch(windows, "release_behind", _a_page_ahead)
