"""Planted in `Window.put`: the layer counts the tokens that it keeps."""

from __future__ import annotations

from typing import Any

from hicache.transformers.layers import window

from ...planted.base import Patch

TITLE = "A window that comes from pages counts only the tokens that it still has."
FAMILIES: tuple[str, ...] = ("gemma3", "gpt-oss")

_put = window.Window.put


def _forgetful(self: Any, layer: Any, rows: Any, past: Any, tokens: int, tail: Any) -> None:
    _put(self, layer, rows, past, min(tokens, layer.sliding_window - 1), tail)


def plant(patch: Patch) -> None:
    patch(window.Window, "put", _forgetful)
