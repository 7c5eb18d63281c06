"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import seating

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request shares one page more than the path that it stands on."
KILLS = "pool-sum"

_take_seat = seating._take_seat


def _one_more(state: Any, request: Any, plan: Any) -> None:
    _take_seat(state, request, plan)
    if request.shared < request.key.pages:
        request.shared += 1


def plant(patch: Patch) -> None:
    patch(seating, "_take_seat", _one_more)
