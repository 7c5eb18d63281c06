"""Planted in `_attention.taken_attention`: the rotary key beside a latent is zero."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import _attention

from ...planted.base import Patch

TITLE = "A page of latents has no rotary keys."
FAMILIES: tuple[str, ...] = ("deepseek-v3", "deepseek-v32")

_taken = _attention.taken_attention


def _without(rows: Any, seen: Any) -> Any:
    new = _taken(rows, seen)
    for one in rows:
        if one.widths:
            new[one.name][..., one.widths[0] :] = 0
    return new


def plant(patch: Patch) -> None:
    patch(_attention, "taken_attention", _without)
