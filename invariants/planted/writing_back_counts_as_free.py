"""Planted in `reclaim.make_device_room`: pages that are being written back count."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim

from .base import Patch

ROWS: tuple[str, ...] = ("F9",)
TITLE = "Pages that a write_back eviction still copies count as free at once."
KILLS = ""

_make_device_room = reclaim.make_device_room


def _too_soon(state: Any, index: int, count: int) -> bool:
    done = _make_device_room(state, index, count)
    return done or bool(state.pools[0][index].free + state.writing_back[index] >= count)


def plant(patch: Patch) -> None:
    patch(reclaim, "make_device_room", _too_soon)
