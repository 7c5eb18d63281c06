"""Planted in `Compressed.put`: the number of entries is not restored."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import compressed

from ...planted.base import Patch

TITLE = "After a boundary, groups are counted from zero again."
FAMILIES: tuple[str, ...] = ("deepseek-v4",)

_put = compressed.Compressed.put


def _anew(self: Any, layer: Any, rows: Any, past: Any, tokens: int, tail: Any) -> None:
    _put(self, layer, rows, past, tokens, tail)
    layer.entry_count = dict.fromkeys(layer.entry_count, 0)


def plant(patch: Patch) -> None:
    patch(compressed.Compressed, "put", _anew)
