"""Planted in `reclaim._under_copy`: it names no copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hicache.core import reclaim

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "While a cold page is being copied to host, warmer pages are evicted in its place."
KILLS = ""


def _none(state: Any) -> Iterator[int]:
    return iter(())


def plant(patch: Patch) -> None:
    patch(reclaim, "_under_copy", _none)
