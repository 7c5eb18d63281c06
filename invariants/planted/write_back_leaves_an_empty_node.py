"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("G3",)
TITLE = "A leaf that host has no room for leaves the device, and stays an empty node."
KILLS = "dead-node"


_drop = eviction.delete_tail


def _demote_only(state: Any, node: Any, tier: Any, pages: int) -> None:
    if tier == Tier.DEVICE:
        eviction.demote(state, eviction.cut_tail(state, node, pages))
    else:
        _drop(state, node, tier, pages)


def plant(patch: Patch) -> None:
    patch(eviction, "delete_tail", _demote_only)
