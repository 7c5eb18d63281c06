"""Planted in `_attention.taken_attention`: rows are rounded to bfloat16."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import _attention

from ...planted.base import Patch

TITLE = "Pages have half the precision of the model."
FAMILIES: tuple[str, ...] = ("llama", "deepseek-v3", "gemma3", "gpt-oss")

_taken = _attention.taken_attention


def _rounded(rows: Any, seen: Any) -> Any:
    return {name: new.bfloat16().to(new.dtype) for name, new in _taken(rows, seen).items()}


def plant(patch: Patch) -> None:
    patch(_attention, "taken_attention", _rounded)
