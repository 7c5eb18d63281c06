"""Planted in `locks.required`: the test for an empty path is missing."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ("E6",)
TITLE = "A prompt that shares nothing, or has no whole page, raises an exception."
KILLS = ""

_required = locks.required


def _never_empty(path: Any, window_pages: int) -> Any:
    return path if path[-1].end_page <= window_pages else _required(path, window_pages)


def plant(patch: Patch) -> None:
    patch(locks, "required", _never_empty)
