"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("G12",)
TITLE = "A node that leaves the device loses the host copies of its windows and states as well."
KILLS = ""

_vacate = eviction.vacate


def _prune_too(state: Any, node: Any, tier: Any) -> None:
    _vacate(state, node, tier)
    if tier != Tier.DEVICE:
        return
    for index in range(1, len(state.components)):
        if node.pages[1][index] is not None and not node.holders[1][index]:
            eviction.bury(state, node, Tier.HOST, index)


def plant(patch: Patch) -> None:
    patch(eviction, "vacate", _prune_too)
