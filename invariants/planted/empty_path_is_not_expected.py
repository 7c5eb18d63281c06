"""Planted in `locks.required`: the test for an empty path is missing."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ("E6",)
TITLE = "A prompt that shares nothing, or has no whole page, stops the engine."
KILLS = ""

_required = locks.required


def _never_empty(path: Any, reach: int) -> Any:
    return path if path[-1].end <= reach else _required(path, reach)


def plant(patch: Patch) -> None:
    patch(locks, "required", _never_empty)
