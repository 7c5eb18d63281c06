"""Planted in `admission`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Nobody is told what an arriving prompt would hit."
KILLS = "answers"


def _say_nothing(state: Any, request: Any) -> None:
    """Reports no match."""


def plant(patch: Patch) -> None:
    patch(admission, "_report_match", _say_nothing)
