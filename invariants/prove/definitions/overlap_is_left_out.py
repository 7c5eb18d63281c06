"""Planted in `Compressed.put`: the share of the last group is not put back."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import compressed

from ...planted.base import Patch

TITLE = "At a boundary, the share that the next group has in the last one is forgotten."
FAMILIES: tuple[str, ...] = ("deepseek-v4",)

_put = compressed.Compressed.put


def _without(self: Any, layer: Any, rows: Any, past: Any, tokens: int, tail: Any) -> None:
    _put(self, layer, rows, past, tokens, tail)
    if tail is None and hasattr(layer, "overlap_kv"):
        layer.overlap_kv = dict.fromkeys(layer.overlap_kv)
        layer.overlap_gate = dict.fromkeys(layer.overlap_gate)


def plant(patch: Patch) -> None:
    patch(compressed.Compressed, "put", _without)
