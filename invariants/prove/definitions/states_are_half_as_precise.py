"""Planted in `_states.taken_states`: states are rounded to bfloat16."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import _states

from ...planted.base import Patch

TITLE = "Recurrent states are kept in half precision."
FAMILIES: tuple[str, ...] = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")

_taken = _states.taken_states


def _rounded(layer: Any) -> Any:
    return {name: state.bfloat16().to(state.dtype) for name, state in _taken(layer).items()}


def plant(patch: Patch) -> None:
    patch(_states, "taken_states", _rounded)
