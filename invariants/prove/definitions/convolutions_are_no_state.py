"""Planted in `_states.put_states`: the states of convolutions are left at zero."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import _states

from ...planted.base import Patch

TITLE = "A boundary has the recurrent states, and the inputs of the convolutions are forgotten."
FAMILIES: tuple[str, ...] = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")

_put = _states.put_states


def _without(layer: Any, rows: Any, past: Any) -> None:
    _put(layer, rows, past)
    for state in layer.conv_states.values():
        state.zero_()


def plant(patch: Patch) -> None:
    patch(_states, "put_states", _without)
