"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import core
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "An order to evict from device is ignored while any action is in flight."
KILLS = "live-evict"
FAULTS = (
    "evict device during the copy",
    "evict device before the reply",
    "evict device after the reply",
)

_evict = core._evict


def _not_now(state: Any, event: Any) -> None:
    if event.tier != Tier.DEVICE or not state.flights:
        _evict(state, event)


def plant(patch: Patch) -> None:
    patch(core, "_evict", _not_now)
