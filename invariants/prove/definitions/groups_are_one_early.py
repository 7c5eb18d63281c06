"""Planted in `Compressed.take`: entries are those of the groups before."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import compressed

from ...planted.base import Patch

TITLE = "A page has the compressed entries of the groups before its own."
FAMILIES: tuple[str, ...] = ("deepseek-v4",)

_take = compressed.Compressed.take


def _early(self: Any, layer: Any, rows: Any, seen: Any, span: Any) -> Any:
    new = _take(self, layer, rows, seen, span)
    for one in rows:
        if one.tokens_per_row > 1:
            new[one.name] = new[one.name].roll(1, 0)
    return new


def plant(patch: Patch) -> None:
    patch(compressed.Compressed, "take", _early)
