"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A leaf that is evicted from device leaves its windows and states there."
KILLS = "device-prefix"

_demote = eviction.demote


def _backbone_only(state: Any, node: Any) -> None:
    if node.pages[1][0] is not None:
        eviction._free_copy(state, node, Tier.DEVICE, 0)
        eviction._refile(state, node)
        return
    _demote(state, node)


def plant(patch: Patch) -> None:
    patch(eviction, "demote", _backbone_only)
