"""Planted in `pinning.hold_pinned`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.wants import pinning

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A pin does not take hold of what comes after it."
KILLS = "lock-bal"
WANTED = True


def _no_more(state: Any, tier: Any) -> None:
    pass


def plant(patch: Patch) -> None:
    patch(pinning, "hold_pinned", _no_more)
