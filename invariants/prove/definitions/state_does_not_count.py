"""Planted in `_states.put_states`: layers are not told that they have a past."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import _states

from ...planted.base import Patch

TITLE = "A layer with a state from a page begins as if it had none."
FAMILIES: tuple[str, ...] = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")

_put = _states.put_states


def _first(layer: Any, rows: Any, past: Any) -> None:
    _put(layer, rows, past)
    layer.has_previous_state = dict.fromkeys(layer.has_previous_state, False)


def plant(patch: Patch) -> None:
    patch(_states, "put_states", _first)
