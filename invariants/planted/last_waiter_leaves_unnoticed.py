"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import flights

from .base import Patch

ROWS = ("H18",)
TITLE = "A prefetch that nobody waits for any more is not abandoned."
KILLS = "prefetch-wait"


def _stop(state: Any, request: Any) -> None:
    flights._stop_waiting(state, request)


def plant(patch: Patch) -> None:
    patch(flights, "leave", _stop)
