"""Planted in `pinning.let_go_flushed`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.wants import pinning

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "After a flush, pins believe that they still hold their pages."
KILLS = "pinned"
WANTED = True


def _remember(state: Any) -> None:
    for pin in state.pins.values():
        for entries in pin.receipt.locked:
            entries.clear()


def plant(patch: Patch) -> None:
    patch(pinning, "let_go_flushed", _remember)
