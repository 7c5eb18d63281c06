"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.runtime import lanes

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Of several copies of one component in a batch, only the last is carried out."
KILLS = ""
EXECUTOR = "device"


def _last(actions: tuple[Any, ...]) -> dict[str, Any]:
    return {copy.component: (copy.source, copy.target) for one in actions for copy in one.copies}


def plant(patch: Patch) -> None:
    patch(lanes, "_merged", _last)
