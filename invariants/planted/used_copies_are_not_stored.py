"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import stores

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Host copies from before storage was attached are not stored when they are used."
KILLS = "stored"


def _never(state: Any, path: Any) -> None:
    stores.pump(state)


def plant(patch: Patch) -> None:
    patch(stores, "store_used", _never)
