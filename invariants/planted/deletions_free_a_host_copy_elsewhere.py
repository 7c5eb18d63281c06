"""Planted in `eviction.delete_tail`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from hicache.core.types import Tier
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "What is deleted from device takes a page of another prefix on host along."
KILLS = "evict-min"
EXCUSES = (
    Reason.BELOW_DELETED,
    Reason.DELETED_PREFIX,
)

_delete_tail = eviction.delete_tail


def _and_one_more(state: Any, node: Any, tier: Any, pages: int) -> None:
    _delete_tail(state, node, tier, pages)
    if tier == Tier.DEVICE:
        eviction.evict_host(state, 0, 1)


def plant(patch: Patch) -> None:
    patch(eviction, "delete_tail", _and_one_more)
