"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction

from .base import Patch

ROWS: tuple[str, ...] = ("L1",)
TITLE = "An eviction that leaves a copy on host is reported as a loss."
KILLS = "durable"

_give_back = eviction._give_back


def _lost(state: Any, tier: Any, index: int, pages: Any, node: Any) -> None:
    _give_back(state, tier, index, pages, node)
    state.out[-1] = state.out[-1]._replace(demoted=False)


def plant(patch: Patch) -> None:
    patch(eviction, "_give_back", _lost)
