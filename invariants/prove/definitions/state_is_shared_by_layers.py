"""Planted in `PagedRows._of`: the states of all layers are those of the first."""

from __future__ import annotations

from typing import Any

from hicache.transformers import rows

from ...planted.base import Patch

TITLE = "A state is one for the model, and not one for each layer."
FAMILIES: tuple[str, ...] = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")

_of = rows.PagedRows._of


def _first(self: Any, layer: Any, one: Any) -> Any:
    if one.component == "mamba":
        name = layer.pools[one.name]
        return self._pools[name][0]
    return _of(self, layer, one)


def plant(patch: Patch) -> None:
    patch(rows.PagedRows, "_of", _first)
