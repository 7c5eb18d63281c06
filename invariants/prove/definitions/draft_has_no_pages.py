"""Planted in `PagedRows._of`: the pools of the draft are never written."""

from __future__ import annotations

from typing import Any

import torch

from hicache.transformers import rows

from ...planted.base import Patch

TITLE = "The draft has no pages of its own, so its past is empty rows."
FAMILIES: tuple[str, ...] = ("draft",)

_of = rows.PagedRows._of


def _own(self: Any, layer: Any, one: Any) -> Any:
    found = _of(self, layer, one)
    if layer.pools[one.name].startswith("draft_"):
        return torch.zeros_like(found)
    return found


def plant(patch: Patch) -> None:
    patch(rows.PagedRows, "_of", _own)
