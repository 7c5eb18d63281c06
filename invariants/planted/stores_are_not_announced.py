"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import stores

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Routers are not told what storage has."
KILLS = "event-mirror"

_acknowledge = stores._acknowledge


def _silently(state: Any, leg: Any, node: Any, count: int) -> None:
    told = len(state.out)
    _acknowledge(state, leg, node, count)
    del state.out[told:]


def plant(patch: Patch) -> None:
    patch(stores, "_acknowledge", _silently)
