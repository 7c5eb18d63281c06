"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import KvRemoved
from hicache.core.radix import tree

from .base import Patch

ROWS: tuple[str, ...] = ("L1",)
TITLE = "A node that loses its last pages publishes no removal."
KILLS = "event-mirror"

_truncate = tree.truncate


def _cut_in_silence(state: Any, node: Any, tier: int, keep: int) -> Any:
    begun = len(state.out)
    pages = _truncate(state, node, tier, keep)
    state.out[begun:] = [item for item in state.out[begun:] if type(item) is not KvRemoved]
    return pages


def plant(patch: Patch) -> None:
    patch(tree, "truncate", _cut_in_silence)
