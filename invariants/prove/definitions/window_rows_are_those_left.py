"""Planted in `Window.take`: rows come from the layer after the pass."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import window

from ...planted.base import Patch

TITLE = "Of a pass, only the rows that are left in the window are stored."
FAMILIES: tuple[str, ...] = ("gemma3", "gpt-oss")

_take = window.Window.take


def _left(self: Any, layer: Any, rows: Any, seen: Any, span: Any) -> Any:
    new = _take(self, layer, rows, seen, span)
    for there in new.values():
        there[: -layer.sliding_window + 1] = 0
    return new


def plant(patch: Patch) -> None:
    patch(window.Window, "take", _left)
