"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import KvStored
from hicache.core.radix import tree
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("L1",)
TITLE = "A copy that arrives on host publishes no store event, while its removal does."
KILLS = "event-mirror"

_attach = tree.attach


def _say_nothing(state: Any, node: Any, tier: Any, index: int, pages: Any) -> None:
    _attach(state, node, tier, index, pages)
    if tier == Tier.HOST and state.out and type(state.out[-1]) is KvStored:
        state.out.pop()


def plant(patch: Patch) -> None:
    patch(tree, "attach", _say_nothing)
