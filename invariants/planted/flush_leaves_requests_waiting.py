"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import flights

from .base import Patch

ROWS = ("H5",)
TITLE = "After a flush, requests still wait for the prefetches from before it."
KILLS = "reset"

_end_every_wait = flights.end_every_wait


def _unless_flushed(state: Any, reason: Any) -> None:
    if reason != "flushed":
        _end_every_wait(state, reason)


def plant(patch: Patch) -> None:
    patch(flights, "end_every_wait", _unless_flushed)
