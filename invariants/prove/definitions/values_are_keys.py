"""Planted in `_attention.put_attention`: keys and values change places."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import _attention

from ...planted.base import Patch

TITLE = "The two parts of a row are taken for each other."
FAMILIES: tuple[str, ...] = ("llama", "gemma3", "gpt-oss", "draft")

_put = _attention.put_attention


def _swapped(layer: Any, rows: Any, past: Any) -> None:
    _put(layer, rows, past)
    layer.keys, layer.values = layer.values, layer.keys


def plant(patch: Patch) -> None:
    patch(_attention, "put_attention", _swapped)
