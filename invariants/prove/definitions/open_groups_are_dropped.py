"""Planted in `Compressed.tail`: the tokens of an open group are empty."""

from __future__ import annotations

from typing import Any

import torch

from hicache.transformers.layers import compressed

from ...planted.base import Patch

TITLE = "A pass that ends inside a group forgets what is in that group."
FAMILIES: tuple[str, ...] = ("deepseek-v4",)

_tail = compressed.Compressed.tail


def _without(self: Any, layer: Any) -> Any:
    tail = _tail(self, layer)
    empty = {
        name: (torch.zeros_like(kv), torch.zeros_like(gate))
        for name, (kv, gate) in tail.buffers.items()
    }
    return tail._replace(buffers=empty)


def plant(patch: Patch) -> None:
    patch(compressed.Compressed, "tail", _without)
