"""Planted in `PagedRows.read_page` and `_states.put_states`: states are views of their page."""

from __future__ import annotations

from typing import Any

from hicache.transformers import rows
from hicache.transformers.layers import _states

from ...planted.base import Patch

TITLE = "A pass goes on in the cached state itself, and not in a copy."
FAMILIES: tuple[str, ...] = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")

_put = _states.put_states


def _view(self: Any, layer: Any, one: Any, page: int) -> Any:
    return self._of(layer, one)[:, page].transpose(0, 1)


def _kept(layer: Any, rows: Any, past: Any) -> None:
    _put(layer, rows, past)
    for one in rows:
        name, _, number = one.name.rpartition("_")
        getattr(layer, f"{name}_states")[int(number)] = past[one.name].view(one.shape)


def plant(patch: Patch) -> None:
    patch(rows.PagedRows, "read_page", _view)
    patch(_states, "put_states", _kept)
