"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import stores

from .base import Patch

ROWS = ("G11",)
TITLE = "A node of which some pages were stored is believed to be stored."
KILLS = "stored"

_acknowledge = stores._acknowledge


def _whole(state: Any, leg: Any, node: Any, count: int) -> None:
    _acknowledge(state, leg, node, len(leg.source) if count else 0)


def plant(patch: Patch) -> None:
    patch(stores, "_acknowledge", _whole)
